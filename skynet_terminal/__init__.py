"""Running commands for people: policy, sandbox, one-shot commands, jobs, shells and terminals.

Nothing here knows who a person is or asks anybody: whoever calls has authorised the call.
"""
