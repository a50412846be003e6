"""What people have their assistant do works inside: a filter that breaks programs would soon be turned off."""

import shutil
from pathlib import Path

import pytest

from skynet_terminal.sandbox import Profile
from skynet_terminal.sandbox.bubblewrap import Bubblewrap
from tests.skynet_terminal.sandbox.running import folder_of, python, shell
from tests.support.programs import needs

pytestmark = needs("bwrap")

C = '#include <stdio.h>\nint main(void) { printf("%d\\n", 6 * 7); return 0; }\n'
GO = 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println(42) }\n'
AUTHOR = "-c user.name=Ada -c user.email=ada@example.org"
NODE = (
    "const { Worker } = require('worker_threads'); const fs = require('fs');"
    "fs.promises.writeFile('x', '42').then(() => fs.promises.readFile('x', 'utf8')).then(console.log);"
    "new Worker('process.exit(0)', { eval: true });"
)


@pytest.fixture
def sandbox(tmp_path: Path) -> Bubblewrap:
    return Bubblewrap(tmp_path / "sandbox")


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile(folder=folder_of(tmp_path))


async def test_python(sandbox: Bubblewrap, profile: Profile) -> None:
    script = (
        "import ctypes, multiprocessing, os, pwd, socket, sqlite3, ssl, subprocess, tempfile, zoneinfo\n"
        "def double(x): return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    ssl.create_default_context()\n"
        "    assert pwd.getpwuid(os.getuid()).pw_name == 'skynet'\n"
        "    assert socket.getaddrinfo('localhost', 80, proto=6)\n"
        "    with tempfile.NamedTemporaryFile() as file: file.write(b'x')\n"
        "    with sqlite3.connect('base.db') as base: base.execute('CREATE TABLE t (a)')\n"
        "    with multiprocessing.Pool(2) as pool: print(pool.map(double, [1, 2]))\n"
        "    server = socket.create_server(('127.0.0.1', 0))\n"
        "    socket.create_connection(server.getsockname()).close()\n"
        "    print(subprocess.run(['echo', 'x'], capture_output=True).stdout)\n"
    )
    ended = await python(sandbox, profile, script)
    assert ended.stdout == "[2, 4]\nb'x\\n'\n", ended.stderr


async def test_the_shell_and_its_tools(sandbox: Bubblewrap, profile: Profile) -> None:
    script = (
        "set -e; mkdir d; seq 3 | tee d/a | awk '{ s += $1 } END { print s }'; sed -i s/1/9/ d/a; "
        "sort -n d/a | tail -1; "
        "tar czf a.tgz d; rm -r d; tar xzf a.tgz; wc -l < d/a; find . -name a | xargs grep -c 9; cat <<< here; "
        "cat <(echo substituted); mktemp > /dev/null; date +%Y > /dev/null; echo x | tee /dev/stderr > /dev/stdout; "
        "nproc > /dev/null; ps > /dev/null; df . > /dev/null; timeout 5 true; echo $((6 * 7)); whoami; nice true"
    )
    ended = await shell(sandbox, profile, script)
    assert ended.stdout.split() == ["6", "9", "3", "1", "here", "substituted", "x", "42", "skynet"], ended.stderr
    assert ended.status == 0


@pytest.mark.parametrize(
    ("program", "script", "output"),
    [
        ("git", f"git init -q . && git add -A && git {AUTHOR} commit -qm 42 && git log --format=%s", "42"),
        ("gcc", "gcc -O2 -o program program.c && ./program", "42"),
        ("go", "PATH=$PATH:/usr/local/go/bin; gofmt -l program.go && go version > version && echo 42", "42"),
        ("node", 'node -e "$(cat program.js)"', "42"),
        ("perl", "perl -MPOSIX -e 'print floor(42.5)'", "42"),
        ("java", "java -version 2> version && test -s version && echo 42", "42"),
        ("curl", "curl --version > /dev/null && echo 42", "42"),
        ("openssl", "openssl x509 -noout -in $(ls /etc/ssl/certs/*.pem | head -1) && echo 42", "42"),
        ("vim", "vim -es -u NONE '+normal i42' '+wq file' && cat file", "42"),
        ("tmux", "tmux new-session -d -s 42 'sleep 100' && tmux list-sessions -F '#S' && tmux kill-server", "42"),
    ],
)  # fmt: skip
async def test_programs(sandbox: Bubblewrap, profile: Profile, program: str, script: str, output: str) -> None:
    if shutil.which(program, path="/usr/local/bin:/usr/bin:/usr/local/go/bin") is None:
        pytest.skip(f"{program} is not installed where commands see it")
    for name, text in (("program.c", C), ("program.go", GO), ("program.js", NODE)):
        (profile.folder / name).write_text(text)
    ended = await shell(sandbox, profile, script)
    assert ended.stdout.strip() == output, ended.stderr
