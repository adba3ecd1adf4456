//! A server under test: a `canon` of our own, or any PostgreSQL.
//!
//! [`Server::start`] starts the binary that Cargo built, on a free port and a temporary data
//! directory, and waits until it answers. When `CANON_TEST_URL` holds a connection string of a
//! PostgreSQL server (libpq's key-value or URL form, a superuser), the same tests run against it
//! instead, each in a database of its own: that is how the expectations were made.
//!
//! The server is killed and its directory removed when the value is dropped; if the test is
//! panicking, the end of the server's log is printed first.
#![allow(dead_code)]

pub mod peer;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Config, NoTls};

/// No test waits longer than this for anything; passing it is a failure, not a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub database: String,
    process: Option<Process>,
    /// On PostgreSQL: where to drop the database.
    maintenance: Option<Config>,
}

struct Process {
    child: Child,
    dir: tempfile::TempDir,
    env: Vec<(String, String)>,
}

static SERIAL: AtomicU32 = AtomicU32::new(0);

/// Whether the target is PostgreSQL rather than Canon.
pub fn on_postgres() -> bool {
    std::env::var_os("CANON_TEST_URL").is_some()
}

/// Something that a test needs is not here. In CI that is a failure. Elsewhere the test says so, and does not run.
pub fn lacks(what: &str) {
    use std::io::Write;
    let in_ci = std::env::var_os("CANON_CI").is_some();
    assert!(!in_ci, "this machine lacks {what}");
    // What is printed by macros is not shown of a test that passes.
    _ = writeln!(std::io::stderr(), "NOT TESTED for lack of {what}");
}

/// Whether expectations are to be rewritten from what the target answers.
pub fn update_golden() -> bool {
    std::env::var("UPDATE_GOLDEN").is_ok_and(|v| v == "1")
}

/// A server with this variable has a standard error that cannot be written.
pub const MUTE: &str = "CANON_TEST_MUTE";

/// A server with this variable runs in the network namespace of this name.
pub const NETNS: &str = "CANON_TEST_NETNS";

/// A server with this variable is the program at this path.
pub const PROGRAM: &str = "CANON_TEST_PROGRAM";

impl Server {
    pub async fn start() -> Server {
        Server::start_with(&[]).await
    }

    /// Starts with environment variables for the server (ignored on PostgreSQL).
    pub async fn start_with(env: &[(&str, &str)]) -> Server {
        let server = match std::env::var("CANON_TEST_URL") {
            Ok(url) => Server::postgres(&url).await,
            Err(_) => Server::canon(env),
        };
        if server.process.is_none() {
            return server;
        }
        let mut server = server;
        server.launch();
        server.ready().await;
        server
    }

    /// Prepares a canon without starting it; see [`Server::launch`].
    pub fn canon(env: &[(&str, &str)]) -> Server {
        let dir = tempfile::Builder::new()
            .prefix("canon-test-")
            .tempdir()
            .expect("a directory");
        let mut command = Command::new("true");
        command.stdout(Stdio::null());
        Server {
            host: "127.0.0.1".into(),
            port: free_port(),
            user: "canon".into(),
            database: "canon".into(),
            process: Some(Process {
                child: command.spawn().expect("true runs"),
                dir,
                env: env
                    .iter()
                    .map(|(k, v)| (k.to_string(), v.to_string()))
                    .collect(),
            }),
            maintenance: None,
        }
    }

    async fn postgres(url: &str) -> Server {
        let maintenance: Config = url.parse().expect("CANON_TEST_URL is a connection string");
        let host = match &maintenance.get_hosts()[0] {
            tokio_postgres::config::Host::Tcp(host) => host.clone(),
            #[cfg(unix)]
            tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
        };
        let database = format!(
            "canon_test_{}_{}",
            std::process::id(),
            SERIAL.fetch_add(1, Ordering::Relaxed)
        );
        let client = connect_to(&maintenance)
            .await
            .expect("CANON_TEST_URL answers");
        for sql in [
            format!("DROP DATABASE IF EXISTS {database}"),
            format!(
                "CREATE DATABASE {database} TEMPLATE template0 ENCODING 'UTF8' \
                 LC_COLLATE 'C' LC_CTYPE 'C'"
            ),
            format!("ALTER DATABASE {database} SET timezone = 'UTC'"),
            // So that who closes a circle of waits is who finds it, as with us.
            format!("ALTER DATABASE {database} SET deadlock_timeout = '10ms'"),
        ] {
            client
                .batch_execute(&sql)
                .await
                .expect("a database for the test");
        }
        Server {
            host,
            port: maintenance.get_ports().first().copied().unwrap_or(5432),
            user: maintenance
                .get_user()
                .expect("CANON_TEST_URL names a user")
                .to_owned(),
            database,
            process: None,
            maintenance: Some(maintenance),
        }
    }

    /// Starts the process (again) on the same directory and port, with the variables it had.
    pub fn launch(&mut self) {
        self.launch_with(&[]);
    }

    /// The same with more arguments.
    pub fn launch_with(&mut self, arguments: &[&str]) {
        self.launch_as("start", arguments);
    }

    /// The same as another command that runs on a directory.
    pub fn launch_as(&mut self, command: &str, arguments: &[&str]) {
        let (host, port) = (self.host.clone(), self.port);
        let process = self.process.as_mut().expect("only a canon can be launched");
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(process.dir.path().join("log"))
            .expect("a log file");
        let mute = process.env.iter().any(|(k, _)| k == MUTE);
        let said = match mute {
            true => std::fs::OpenOptions::new().write(true).open("/dev/full"),
            false => log.try_clone(),
        };
        let other = process.env.iter().find(|(k, _)| k == PROGRAM);
        let canon = other.map_or(env!("CARGO_BIN_EXE_canon"), |(_, path)| path.as_str());
        let inside = process.env.iter().find(|(k, _)| k == NETNS);
        let mut run = match inside {
            Some((_, name)) => {
                let mut run = Command::new("ip");
                run.args(["netns", "exec", name, canon]);
                run
            }
            None => Command::new(canon),
        };
        process.child = run
            .arg(command)
            .arg("--data")
            .arg(process.dir.path().join("data"))
            .arg("--listen")
            .arg(format!("{host}:{port}"))
            .args(arguments)
            .env(
                "CANON_CLUSTER_SECRET_FILE",
                cluster_secret(process.dir.path()),
            )
            // The tests were written for this level, unless they name another.
            .env(
                "CANON_SETTINGS",
                "default_transaction_isolation=serializable",
            )
            .envs(process.env.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(said.expect("a file for what it says"))
            .spawn()
            .expect("canon starts");
    }

    /// Replaces the variables for the next launch.
    pub fn set_env(&mut self, env: &[(&str, &str)]) {
        let process = self.process.as_mut().expect("only a canon has variables");
        process.env = env
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
    }

    /// Waits until the server answers a query. Panics if it has exited.
    pub async fn ready(&mut self) {
        if let Err(why) = self.try_ready().await {
            panic!("{why}\n{}", self.log_tail());
        }
    }

    /// As `ready`, for a server that may die on its way (a fault point in the start).
    pub async fn try_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(client) = connect_to(&self.config()).await
                && client.simple_query("SELECT 1").await.is_ok()
            {
                return Ok(());
            }
            if let Some(process) = &mut self.process
                && let Some(status) = process.child.try_wait().expect("the child can be asked")
            {
                return Err(format!("canon exited: {status}"));
            }
            if Instant::now() > deadline {
                return Err("canon does not answer".into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the server says that it does not serve yet (57P03); its words.
    pub async fn not_serving(&self) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match connect_to(&self.config()).await {
                Ok(_) => panic!("it serves\n{}", self.log_tail()),
                Err(e) => {
                    if let Some(d) = e.as_db_error()
                        && d.code().code() == "57P03"
                    {
                        return d.message().to_owned();
                    }
                }
            }
            assert!(Instant::now() < deadline, "no answer\n{}", self.log_tail());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether the process is still there.
    pub fn alive(&mut self) -> bool {
        match &mut self.process {
            Some(process) => process
                .child
                .try_wait()
                .expect("the child can be asked")
                .is_none(),
            None => true,
        }
    }

    pub fn pid(&self) -> u32 {
        self.process
            .as_ref()
            .expect("only a canon has one")
            .child
            .id()
    }

    /// SIGKILL from any holder, without waiting; `kill` afterwards reaps it.
    pub fn kill_now(&self) {
        let process = self.process.as_ref().expect("only a canon can be killed");
        let status = Command::new("kill")
            .args(["-9", &process.child.id().to_string()])
            .status();
        assert!(
            status.expect("kill runs").success(),
            "the server was gone before"
        );
    }

    /// SIGKILL, and wait until it is gone.
    pub fn kill(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }

    /// Waits until the process ends by itself (a fault point); `None` if it does not.
    pub async fn exited(&mut self, patience: Duration) -> Option<std::process::ExitStatus> {
        let deadline = Instant::now() + patience;
        let process = self.process.as_mut().expect("only a canon exits");
        loop {
            if let Some(status) = process.child.try_wait().expect("the child can be asked") {
                return Some(status);
            }
            if Instant::now() > deadline {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub fn data_dir(&self) -> PathBuf {
        self.process
            .as_ref()
            .expect("only a canon has one")
            .dir
            .path()
            .join("data")
    }

    pub fn scratch(&self) -> &Path {
        self.process
            .as_ref()
            .expect("only a canon has one")
            .dir
            .path()
    }

    pub fn config(&self) -> Config {
        let mut config = Config::new();
        config
            .host(&self.host)
            .port(self.port)
            .user(&self.user)
            .dbname(&self.database)
            .connect_timeout(PATIENCE);
        config
    }

    /// libpq's URL form, for tools.
    pub fn url(&self) -> String {
        format!(
            "postgresql://{}@{}:{}/{}",
            self.user, self.host, self.port, self.database
        )
    }

    pub async fn connect(&self) -> Client {
        connect_to(&self.config())
            .await
            .expect("the server takes connections")
    }

    pub fn log_tail(&self) -> String {
        let Some(process) = &self.process else {
            return String::new();
        };
        let log = std::fs::read(process.dir.path().join("log")).unwrap_or_default();
        let tail = &log[log.len().saturating_sub(4000)..];
        format!(
            "--- end of the server's log\n{}",
            String::from_utf8_lossy(tail)
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail());
        }
        self.kill();
        if let Some(config) = self.maintenance.take() {
            let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.database);
            // The test's runtime may be going down: use one of our own.
            let dropping = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                runtime.expect("a runtime").block_on(async {
                    if let Ok(client) = connect_to(&config).await {
                        let _ = client.batch_execute(&sql).await;
                    }
                });
            });
            let _ = dropping.join();
        }
    }
}

/// Connects and lets the connection run in the background.
pub async fn connect_to(config: &Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(client)
}

/// The SQLSTATE of an error, or "connection" when the server did not send one.
pub fn sqlstate(error: &tokio_postgres::Error) -> String {
    error
        .code()
        .map_or("connection".into(), |code| code.code().to_owned())
}

/// A port that is free, and was not given to anybody else of this process.
pub fn free_port() -> u16 {
    canon::cluster::free_address().expect("a port").port()
}

/// A file with the secret of the clusters that tests make, which only its owner may read.
pub fn cluster_secret(directory: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join("secret");
    if !path.exists() {
        std::fs::write(&path, SECRET).expect("written");
        let own = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, own).expect("ours");
    }
    path
}

/// What stands in it.
pub const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";

/// Where this crate's test files are.
pub fn tests_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}
