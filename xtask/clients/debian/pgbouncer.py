"""PgBouncer in front of the server: pgbench through transaction pooling and session pooling, its own console, a reload."""
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time

BIN = os.environ["CANON_PG_BIN"]
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
at = pathlib.Path(tempfile.mkdtemp())
# It refuses to be root.
root = os.getuid() == 0
user = "postgres" if root else pwd.getpwuid(os.getuid()).pw_name
(at / "users").write_text('"canon" ""\n')


def settings(mode):
    (at / "ini").write_text(
        f"[databases]\ncanon = host=127.0.0.1 port={sys.argv[1]}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
        f"unix_socket_dir =\nauth_type = trust\nauth_file = {at}/users\nadmin_users = canon\npool_mode = {mode}\ndefault_pool_size = 3\n"
        f"logfile = {at}/log\npidfile = {at}/pid\nignore_startup_parameters = extra_float_digits\n"
    )


settings("transaction")
if root:
    at.chmod(0o755)
    subprocess.run(["chown", "-R", user, at], check=True)
bouncer = subprocess.Popen(["/usr/sbin/pgbouncer", "-q"] + (["-u", user] if root else []) + [at / "ini"])


def run(program, *arguments, base="canon"):
    place = ["-h", "127.0.0.1", "-p", str(port), "-U", "canon"]
    said = subprocess.run([f"{BIN}/{program}", *place, *arguments, base], capture_output=True, text=True)
    if said.returncode:
        sys.exit(f"{program} {arguments}: {said.stdout}{said.stderr}")
    return said.stdout


try:
    end = time.monotonic() + 30
    while socket.socket().connect_ex(("127.0.0.1", port)):
        assert bouncer.poll() is None and time.monotonic() < end, (at / "log").read_text()
        time.sleep(0.05)
    run("pgbench", "-i", "-q", "-s", "1")
    # More clients than connections.
    run("pgbench", "-n", "-c", "8", "-j", "2", "-t", "100", "--protocol=simple")
    assert "canon" in run("psql", "-Atc", "SHOW POOLS", base="pgbouncer")
    settings("session")
    run("psql", "-Atc", "RELOAD", base="pgbouncer")
    run("psql", "-Atc", "RECONNECT", base="pgbouncer")
    for protocol in "extended", "prepared":
        run("pgbench", "-n", "-c", "3", "-t", "50", f"--protocol={protocol}")
    # What the session had is gone for the next client (DISCARD ALL).
    run("psql", "-c", "SET search_path = nowhere; PREPARE p AS SELECT 1; LISTEN news; CREATE TEMP TABLE t ()")
    assert run("psql", "-Atc", "SELECT current_setting('search_path'), count(*) FROM pg_prepared_statements") == '"$user", public|0\n'
    assert run("psql", "-Atc", "SELECT count(*) FROM pgbench_history") == "1100\n"
finally:
    bouncer.terminate()
    bouncer.wait()
    shutil.rmtree(at)
