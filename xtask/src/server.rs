//! Servers to run scripts against: PostgreSQL 15 and canon, each in a new directory of its own, on a free port.
//!
//! Both have the user and the database `canon` and trust loopback. PostgreSQL refuses to run as root, so as root it runs as
//! the user `postgres` that the Debian package makes. Its locale is C and its time zone UTC.

use crate::{Result, command, guard::Guard, process, wire};
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The name of the user and of the database, everywhere.
pub const USER: &str = "canon";

/// A server that has not answered by then will not.
const PATIENCE: Duration = Duration::from_secs(120);

/// The defaults that everybody changes first; durability untouched.
const POSTGRES_SETTINGS: &str = "\
listen_addresses = '127.0.0.1'
max_connections = 200
shared_buffers = 1GB
max_wal_size = 8GB
min_wal_size = 2GB
checkpoint_timeout = 15min
fsync = on
synchronous_commit = on
full_page_writes = on
logging_collector = off
log_min_messages = warning
timezone = 'UTC'
datestyle = 'ISO, MDY'
";

/// A running server; ends when dropped.
pub struct Server {
    pub name: &'static str,
    pub port: u16,
    child: Child,
    /// What was started, to start it again.
    program: Command,
    log: PathBuf,
    /// `TERM` lets canon finish; PostgreSQL's fast shutdown is `INT`.
    stop: &'static str,
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn connect(&self) -> std::result::Result<wire::Connection, wire::Error> {
        wire::Connection::open(self.port, USER)
    }

    /// Runs statements that must succeed.
    pub fn sql(&self, sql: &str) -> Result<wire::Rows> {
        let ran = self.connect().and_then(|mut c| c.query(sql));
        ran.map_err(|e| format!("{}: {sql}: {e}", self.name))
    }

    /// `None` while the process lives.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!("{} ended: {status}", self.name))
    }

    /// Until a query succeeds; the error shows the server's log.
    pub fn ready(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let answer = self.connect().and_then(|mut c| c.query("SELECT 1"));
            let Err(last) = answer else { return Ok(()) };
            let ended = self.ended();
            if ended.is_some() || begun.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                let why = ended.unwrap_or(format!("{}: no answer: {last}", self.name));
                return Err(format!("{why}\n{log}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Of what is started next.
    pub fn set_env(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(v) => self.program.env(name, v),
            None => self.program.env_remove(name),
        };
    }

    /// `kill -9` for all of it.
    pub fn kill(&mut self) -> Result<()> {
        // Its number may be another's once it was waited for.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return Ok(());
        }
        process::kill_tree(self.pid());
        let waited = self.child.wait();
        waited.map(drop).map_err(|e| format!("{}: {e}", self.name))
    }

    /// `kill -9` for all of it, then the same start again; gives the time until it answers.
    pub fn crash_and_restart(&mut self, guard: &mut Guard) -> Result<Duration> {
        self.kill()?;
        self.start_again(guard)
    }

    /// An orderly end, then the same start again.
    pub fn restart(&mut self, guard: &mut Guard) -> Result<()> {
        self.end();
        self.start_again(guard).map(drop)
    }

    /// Waits for the end, half a minute at most.
    fn end(&mut self) {
        let mut kill = Command::new("kill");
        kill.args([self.stop, &self.pid().to_string()]);
        let _ = kill.stderr(Stdio::null()).status();
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > Duration::from_secs(30) {
                process::kill_tree(self.pid());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn start_again(&mut self, guard: &mut Guard) -> Result<Duration> {
        let fail = |e: std::io::Error| format!("{}: {e}", self.name);
        let begun = Instant::now();
        self.child = self.program.spawn().map_err(fail)?;
        guard.process(self.pid())?;
        self.ready()?;
        Ok(begun.elapsed())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A port that is free now, and that this program has not given before: what it was given for may not listen yet.
pub fn free_port() -> Result<u16> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let mut given = GIVEN.lock().unwrap_or_else(|e| e.into_inner());
        if given.insert(port) {
            return Ok(port);
        }
    }
}

/// A new directory below `parent`, removed by the guard.
pub fn new_directory(parent: &Path, guard: &mut Guard) -> Result<PathBuf> {
    let directory = parent.join(format!("canon-xtask-{}", std::process::id()));
    std::fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    guard.directory(&directory)?;
    // PostgreSQL's user must be able to pass.
    command::output(Command::new("chmod").arg("755").arg(&directory))?;
    Ok(directory)
}

/// Starts PostgreSQL 15, whose programs lie in `programs`, with its data in `parent/postgres`; `small` for tests that need no buffers.
pub fn postgres(programs: &Path, parent: &Path, guard: &mut Guard, small: bool) -> Result<Server> {
    let home = parent.join("postgres");
    std::fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
    give_to_postgres(&home)?;
    let program = |name: &str| as_postgres(programs.join(name), &home);
    let data = home.join("data");
    let mut initdb = program("initdb")?;
    initdb.args([
        "--username",
        USER,
        "--auth=trust",
        "--locale=C",
        "--encoding=UTF8",
    ]);
    command::output(initdb.arg("--pgdata").arg(&data))?;
    let mut settings = format!(
        "{POSTGRES_SETTINGS}unix_socket_directories = '{}'\n",
        home.display()
    );
    if small {
        settings.push_str("shared_buffers = 32MB\nmin_wal_size = 80MB\nfsync = off\n");
    }
    let file = data.join("postgresql.conf");
    let mut text = std::fs::read_to_string(&file).map_err(|e| e.to_string())?;
    text.push_str(&settings);
    std::fs::write(&file, text).map_err(|e| e.to_string())?;
    let port = free_port()?;
    let log = parent.join("postgres.log");
    let mut server = program("postgres")?;
    server.arg("-D").arg(&data).args(["-p", &port.to_string()]);
    let mut server = start("PostgreSQL", server, port, "-INT", &log, guard)?;
    // The database of the user's name does not exist yet: make it from `postgres`.
    let mut psql = program("psql")?;
    psql.args([
        "--quiet",
        "--no-psqlrc",
        "--host=127.0.0.1",
        "--username",
        USER,
    ]);
    psql.args(["--port", &port.to_string(), "--dbname=postgres"]);
    psql.args(["--command", "CREATE DATABASE canon"]);
    let begun = Instant::now();
    while let Err(e) = command::output(&mut psql) {
        if begun.elapsed() > PATIENCE {
            return Err(e);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    server.ready()?;
    Ok(server)
}

/// Starts `program` (a canon binary) with its data in `parent/canon`.
pub fn canon(program: &Path, parent: &Path, guard: &mut Guard) -> Result<Server> {
    let port = free_port()?;
    let log = parent.join("canon.log");
    let mut server = Command::new(program);
    server.arg("start").arg("--data").arg(parent.join("canon"));
    server.args(["--listen", &format!("127.0.0.1:{port}")]);
    let mut server = start("canon", server, port, "-TERM", &log, guard)?;
    server.ready()?;
    Ok(server)
}

/// Starts any other program that serves `port`, e.g. one that answers constants.
pub fn start(
    name: &'static str,
    mut program: Command,
    port: u16,
    stop: &'static str,
    log: &Path,
    guard: &mut Guard,
) -> Result<Server> {
    let fail = |e: std::io::Error| format!("{name}: {e}");
    let out = std::fs::File::create(log).map_err(fail)?;
    program.stdout(out.try_clone().map_err(fail)?).stderr(out);
    program.stdin(Stdio::null());
    let child = program.spawn().map_err(fail)?;
    guard.process(child.id())?;
    Ok(Server {
        name,
        port,
        child,
        program,
        log: log.to_path_buf(),
        stop,
    })
}

/// This program in this directory, as the user that PostgreSQL runs as.
pub fn as_postgres(program: PathBuf, home: &Path) -> Result<Command> {
    let mut program = Command::new(program);
    program.current_dir(home);
    if let Some((user, group)) = owner()? {
        program.uid(user).gid(group);
    }
    Ok(program)
}

/// PostgreSQL may write there.
pub fn give_to_postgres(path: &Path) -> Result<()> {
    match owner()? {
        Some(_) => {
            let mut chown = Command::new("chown");
            command::output(chown.arg("postgres:").arg(path)).map(drop)
        }
        None => Ok(()),
    }
}

/// The ids to run PostgreSQL with, where we are root.
fn owner() -> Result<Option<(u32, u32)>> {
    let id = |args: &[&str]| -> Result<u32> {
        let text = command::output(Command::new("id").args(args))?;
        text.trim().parse().map_err(|_| format!("id said {text}"))
    };
    if id(&["-u"])? != 0 {
        return Ok(None);
    }
    Ok(Some((id(&["-u", "postgres"])?, id(&["-g", "postgres"])?)))
}
