//! `canon proxy`: one endpoint before several nodes; the same program without a store.
//!
//! ```text
//! client ─▶ door.rs ─▶ session.rs (a task) ─▶ a node                      nodes are asked every 200 ms: watch.rs
//!              │ messages                                                    │ role, term, age, replicas that follow
//!              ▼                                                             ▼
//!           track.rs: what is under way, what must be carried          route.rs: which node, who should move
//! ```
//! `track` and `route` decide and know no socket; words.rs tells what a text of SQL may do. A client's first connection to a node is
//! authenticated by that node: the proxy passes the messages through and has no passwords but its own. Another node is then opened with
//! the proxy's role, a superuser's, which speaks for the client's (`canon.session_user`); see docs/decisions/0017.
//!
//! Left out on purpose: several clients on one connection to a node, TLS, a Unix socket.

mod door;
mod end;
mod hello;
mod metrics;
pub mod route;
mod session;
pub mod track;
mod watch;
use base::{Error, Result, SqlState};
use metrics::Counters;
use parking_lot::Mutex;
use protocol::Conninfo;
use route::{Attrs, Command, Event, NodeId, Router, SessionId};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// While a session waits for a node, nodes are asked as often as this.
const WAITING: Duration = Duration::from_millis(100);

/// What `canon proxy` is told.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Nodes of the cluster; one that answers is enough, replicas of the primary are found
    #[arg(
        long,
        value_name = "HOST:PORT,…",
        env = "CANON_PROXY_NODES",
        value_delimiter = ',',
        required = true
    )]
    pub nodes: Vec<String>,
    /// Address for PostgreSQL clients, which get any node
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "CANON_PROXY_LISTEN",
        default_value = "127.0.0.1:6432"
    )]
    pub listen: String,
    /// A second address, whose clients get the primary
    #[arg(long, value_name = "HOST:PORT", env = "CANON_PROXY_LISTEN_PRIMARY")]
    pub listen_primary: Option<String>,
    /// A third address, whose clients get replicas
    #[arg(long, value_name = "HOST:PORT", env = "CANON_PROXY_LISTEN_STANDBY")]
    pub listen_standby: Option<String>,
    /// Address for /healthz, /readyz and /metrics
    #[arg(long, value_name = "HOST:PORT", env = "CANON_PROXY_HTTP")]
    pub http: Option<String>,
    /// The proxy's own role, a superuser; its password comes from PGPASSWORD
    #[arg(long, value_name = "ROLE", env = "CANON_PROXY_USER", default_value = protocol::DATABASE)]
    pub user: String,
    /// Most clients
    #[arg(
        long,
        value_name = "N",
        env = "CANON_PROXY_MAX_CONNECTIONS",
        default_value_t = 1000
    )]
    pub max_connections: usize,
    /// A replica that is older gets no sessions while there is a fresher one
    #[arg(long, value_name = "TIME", env = "CANON_PROXY_MAX_LAG", default_value = "1s", value_parser = time)]
    pub max_lag: Duration,
    /// How often nodes are asked how they are
    #[arg(long, value_name = "TIME", env = "CANON_PROXY_CHECK_INTERVAL", default_value = "200ms", value_parser = time)]
    pub check_interval: Duration,
    /// How long a client waits for a node when none can take it
    #[arg(long, value_name = "TIME", env = "CANON_PROXY_PATIENCE", default_value = "30s", value_parser = time)]
    pub patience: Duration,
    /// Time that open transactions get at SIGTERM
    #[arg(long, value_name = "TIME", env = "CANON_PROXY_SHUTDOWN_TIMEOUT", default_value = "30s", value_parser = time)]
    pub shutdown_timeout: Duration,
    /// Let users without a password in from other machines than this
    #[arg(long, env = "CANON_ALLOW_PASSWORDLESS_NETWORK")]
    pub allow_passwordless_network: bool,
    /// error, warn, info, debug or trace
    #[arg(
        long,
        value_name = "LEVEL",
        env = "CANON_LOG_LEVEL",
        default_value = "info"
    )]
    pub log_level: String,
}

fn time(text: &str) -> std::result::Result<Duration, String> {
    let found = crate::config::duration(text).filter(|d| !d.is_zero());
    found.ok_or_else(|| "a time such as 500ms or 30s".into())
}

fn bad(key: &str, v: &str, why: &str) -> Error {
    Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("--{key} {v}: {why}"),
    )
}

/// A client, for others: to cancel what it runs, to have it moved.
pub(crate) struct Client {
    secret: i32,
    wake: Notify,
    move_on: AtomicBool,
    /// Its node may keep it waiting for ever: 1, reads leave; 2, transactions too.
    pull: AtomicU8,
    /// Where its statements run, and the key of a cancel request there.
    at: Mutex<Option<(NodeId, [u8; 8])>>,
}

/// A proxy that runs.
pub struct Proxy {
    options: Options,
    router: Mutex<Router>,
    /// What is known of nodes has changed.
    news: Notify,
    /// All nodes are to be asked at once how they are.
    ask: tokio::sync::watch::Sender<()>,
    clients: Mutex<HashMap<SessionId, Arc<Client>>>,
    watches: Mutex<HashMap<NodeId, JoinHandle<()>>>,
    next: AtomicI32,
    closing: AtomicBool,
    env: env::Env,
    counters: Counters,
}

/// Runs a proxy until it is told to stop.
pub fn run(options: Options) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::new(&options.log_level);
    _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
    let runtime = crate::server::runtime()?;
    runtime.block_on(async {
        let proxy = Running::start(options).await?;
        let name = crate::server::stop_signal().await?;
        info!(signal = name, "stopping");
        proxy.stop().await;
        Ok::<(), Error>(())
    })?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

/// A proxy with its listeners.
pub struct Running {
    pub proxy: Arc<Proxy>,
    /// Any node, and, where asked for, the primary and replicas.
    pub listening: Vec<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts one. Call inside of a runtime with several threads.
    pub async fn start(options: Options) -> Result<Running> {
        for n in &options.nodes {
            Conninfo::parse(n).map_err(|why| bad("nodes", n, &why))?;
        }
        let proxy = Arc::new(Proxy {
            router: Mutex::new(Router::new(options.max_lag)),
            news: Notify::new(),
            ask: tokio::sync::watch::Sender::new(()),
            clients: Mutex::default(),
            watches: Mutex::default(),
            next: AtomicI32::new(0),
            closing: AtomicBool::new(false),
            env: env::Env::os(),
            counters: Counters::default(),
            options,
        });
        let o = &proxy.options;
        let (mut tasks, mut listening) = (Vec::new(), Vec::new());
        if let Some(address) = &o.http {
            let listener = bind("http", address).await?;
            let probe = Arc::new(metrics::Page(proxy.clone()));
            tasks.push(tokio::spawn(crate::http::serve(listener, probe)));
        }
        let doors = [
            ("listen", Some(&o.listen), Attrs::Any),
            ("listen-primary", o.listen_primary.as_ref(), Attrs::Primary),
            ("listen-standby", o.listen_standby.as_ref(), Attrs::Standby),
        ];
        for (key, address, attrs) in doors {
            let Some(address) = address else { continue };
            let listener = bind(key, address).await?;
            let at = listener.local_addr().map_err(system)?;
            info!(address = %at, ?attrs, "listening");
            listening.push(at);
            tasks.push(tokio::spawn(proxy.clone().listen(listener, attrs)));
        }
        for address in &o.nodes {
            proxy.event(Event::Found {
                address: address.clone(),
                configured: true,
            });
        }
        tasks.push(tokio::spawn(proxy.clone().tick()));
        Ok(Running {
            proxy,
            listening,
            tasks,
        })
    }

    /// Lets open transactions end within the limit, then ends everything.
    pub async fn stop(mut self) {
        self.proxy.closing.store(true, Ordering::SeqCst);
        let until = tokio::time::Instant::now() + self.proxy.options.shutdown_timeout;
        while tokio::time::Instant::now() < until {
            let clients: Vec<_> = self.proxy.clients.lock().values().cloned().collect();
            if clients.is_empty() {
                break;
            }
            clients.iter().for_each(|c| c.wake.notify_one());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let left = self.proxy.clients.lock().len();
        info!(left, "clients are gone");
        for t in self.tasks.drain(..) {
            t.abort();
        }
        for (_, t) in self.proxy.watches.lock().drain() {
            t.abort();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.proxy
            .watches
            .lock()
            .values()
            .for_each(JoinHandle::abort);
    }
}

pub(crate) fn system(e: impl std::fmt::Display) -> Error {
    Error::new(SqlState::SYSTEM_ERROR, e.to_string())
}

async fn bind(key: &str, address: &str) -> Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|e| bad(key, address, &e.to_string()))
}

impl Proxy {
    /// Takes connections.
    async fn listen(self: Arc<Self>, listener: TcpListener, attrs: Attrs) {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    _ = stream.set_nodelay(true);
                    tokio::spawn(session::serve(self.clone(), stream, address, attrs));
                }
                Err(e) => {
                    warn!(error = %e, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    async fn tick(self: Arc<Self>) {
        let mut every = tokio::time::interval(self.options.check_interval);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            self.event(Event::Tick);
        }
    }

    /// Tells the router, and does what it says.
    pub(crate) fn event(self: &Arc<Self>, event: Event) {
        let commands = self.router.lock().handle(event);
        for c in commands {
            match c {
                Command::Watch(id) => {
                    let task = tokio::spawn(watch::watch(self.clone(), id));
                    if let Some(old) = self.watches.lock().insert(id, task) {
                        old.abort();
                    }
                }
                Command::Forget(id) => {
                    info!(node = %self.node(id), "forgotten");
                    if let Some(task) = self.watches.lock().remove(&id) {
                        task.abort();
                    }
                }
                Command::Move(s) => {
                    if let Some(c) = self.clients.lock().get(&s) {
                        c.move_on.store(true, Ordering::SeqCst);
                        c.wake.notify_one();
                    }
                }
                Command::Pull { session, block } => {
                    if let Some(c) = self.clients.lock().get(&session) {
                        c.pull.store(1 + u8::from(block), Ordering::SeqCst);
                        c.wake.notify_one();
                    }
                }
            }
        }
        self.news.notify_waiters();
    }

    /// A node has refused what a session wanted: until it has been asked, which is now, it leads nobody.
    pub(crate) fn refused(self: &Arc<Self>, id: NodeId) {
        self.event(Event::Refused(id));
        self.ask();
    }

    /// Something has changed at the nodes: asks all of them now.
    pub(crate) fn ask(&self) {
        self.ask.send_replace(());
    }

    /// Where a node is, with the proxy's own role.
    pub(crate) fn node(&self, id: NodeId) -> Conninfo {
        let address = self.router.lock().nodes[id].address.clone();
        let mut p = Conninfo::parse(&address).expect("nodes are added only with good addresses");
        p.user = self.options.user.clone();
        p.connect_timeout = Duration::from_secs(5);
        p
    }

    /// Waits until such a session may not be at this node any more.
    pub(crate) async fn unfit(&self, node: NodeId, attrs: Attrs) {
        loop {
            let news = self.news.notified();
            if !self.router.lock().fits(node, attrs) {
                return;
            }
            news.await;
        }
    }

    /// The node for a session, waiting for one within what is left of the time.
    pub(crate) async fn pick(
        &self,
        attrs: Attrs,
        avoid: Option<NodeId>,
        until: tokio::time::Instant,
    ) -> Result<NodeId> {
        loop {
            let news = self.news.notified();
            if let Some(id) = self.router.lock().pick(attrs, avoid) {
                return Ok(id);
            }
            let soon = until.min(tokio::time::Instant::now() + WAITING);
            if tokio::time::timeout_at(soon, news).await.is_ok() {
                continue;
            }
            // Somebody waits for what the nodes are going to say.
            self.ask();
            if tokio::time::Instant::now() >= until {
                let what = match attrs {
                    Attrs::Primary => "no primary can be reached",
                    Attrs::Standby => "no replica can be reached",
                    _ => "no node can be reached",
                };
                return Err(Error::new(SqlState::CANNOT_CONNECT_NOW, what));
            }
        }
    }
}
