"""The version that clients see."""

VERSION = "0.1.0"
