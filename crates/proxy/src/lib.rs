//! `canon proxy`: one endpoint before several nodes; the same program without a store.
//!
//! ```text
//! client ─▶ door.rs ─▶ session.rs (a task) ─▶ a node                      nodes are asked every 200 ms: watch.rs
//!              │ messages                                                    │ role, term, age, replicas that follow
//!              ▼                                                             ▼
//!           track.rs: what is under way, what must be carried          route.rs: which node, who should move
//! ```
//! `track` and `route` decide and know no socket; `sql::effect` tells what a text of SQL may do. A client's first connection to a node is
//! authenticated by that node: the proxy passes the messages through and has no passwords but its own. Another node is then opened with
//! the proxy's role, a superuser's, which speaks for the client's (`canon.session_user`); see docs/decisions/0017. `proof` says what makes a node
//! one.
//!
//! Left out on purpose: several clients on one connection to a node, a Unix socket, clients' certificates.

mod door;
mod end;
mod hello;
mod metrics;
mod options;
mod proof;
pub mod route;
mod session;
mod shared;
pub mod track;
mod watch;

pub use options::Options;

use base::{Error, Result, SqlState};
use parking_lot::Mutex;
use protocol::Conninfo;
use protocol::tls::{Acceptor, Files, authorities};
use route::{Attrs, Event, NodeId, Router};
use service::system;
use shared::{Counters, Proxy, Watching};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tracing::{info, warn};

fn bad(key: &str, v: &str, why: &str) -> Error {
    Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("--{key} {v}: {why}"),
    )
}

/// What a process needs before it is a proxy: a log, and files.
pub fn prepare(options: &Options) {
    let filter = tracing_subscriber::EnvFilter::new(&options.log_level);
    _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
    raise_open_files(options);
}

/// Runs a proxy until it is told to stop. Call inside of a runtime with several threads.
pub async fn serve(options: Options) -> Result<()> {
    let proxy = Running::start(options).await?;
    let name = service::stop_signal().await?;
    info!(signal = name, "stopping");
    proxy.stop().await;
    Ok(())
}

/// Files that a proxy has open beside its connections, near enough.
const FILES: u64 = 128;

/// A client is a file to the system, so is its node, and so is a connection that has said nothing yet. A process may commonly have 1024 until it asks
/// for more.
fn raise_open_files(options: &Options) {
    let limit = env::disk::raise_open_files();
    let wanted = 3 * options.max_connections as u64 + FILES;
    if let Some(limit) = limit.filter(|limit| *limit < wanted) {
        warn!(
            limit,
            "the limit of open files (ulimit -n) is below what max_connections needs, {wanted}"
        );
    }
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
        let tls = acceptor(&options)?;
        if let Some(path) = &options.tls_cluster_ca {
            authorities(path)?;
        }
        let secret = proof::secret(&options)?;
        let (watches, watching) = unbounded_channel();
        let proxy = Arc::new(Proxy {
            router: Mutex::new(Router::new(options.max_lag)),
            news: Notify::new(),
            ask: tokio::sync::watch::Sender::new(()),
            clients: Mutex::default(),
            greeting: AtomicUsize::new(0),
            secret,
            watches,
            next: AtomicI32::new(0),
            closing: AtomicBool::new(false),
            env: env::Env::os(),
            counters: Counters::default(),
            tls,
            options,
        });
        let o = &proxy.options;
        let (mut tasks, mut listening) = (Vec::new(), Vec::new());
        if let Some(address) = &o.http {
            let listener = bind("http", address).await?;
            let probe = Arc::new(metrics::State(proxy.clone()));
            tasks.push(tokio::spawn(service::http::serve(listener, probe)));
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
            if !at.ip().is_loopback() && proxy.tls.is_none() && !o.allow_plain_network {
                let why = "it can be reached from other machines, which is refused without TLS: say --tls-certificate and --tls-key, or --allow-plain-network";
                return Err(bad(key, address, why));
            }
            info!(address = %at, ?attrs, "listening");
            listening.push(at);
            tasks.push(tokio::spawn(listen(proxy.clone(), listener, attrs)));
        }
        if let Some(tls) = &proxy.tls {
            tasks.push(tokio::spawn(tls.clone().keep(|read| match read {
                Ok(()) => info!("certificates are read again; new connections get them"),
                Err(e) => warn!("certificates could not be read, the old ones stay: {e}"),
            })));
        }
        for address in &o.nodes {
            proxy.event(Event::Found {
                address: address.clone(),
                configured: true,
            });
        }
        tasks.push(tokio::spawn(watch_nodes(proxy.clone(), watching)));
        tasks.push(tokio::spawn(tick(proxy.clone())));
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
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// What clients get that ask for TLS; none: no TLS.
fn acceptor(options: &Options) -> Result<Option<Arc<Acceptor>>> {
    let (Some(certificate), Some(key)) = (&options.tls_certificate, &options.tls_key) else {
        return Ok(None);
    };
    let files = Files {
        certificate: certificate.clone(),
        key: key.clone(),
        client_ca: None,
    };
    service::secret::must_be_private(key, "a private key").map_err(|e| {
        let shown = key.display().to_string();
        bad("tls-key", &shown, &e.fields().message)
    })?;
    Ok(Some(Arc::new(Acceptor::new(files)?)))
}

async fn bind(key: &str, address: &str) -> Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|e| bad(key, address, &e.to_string()))
}

/// Takes connections. While as many as there may be clients have not said what they want, others are closed at once: silence costs them nothing, and a
/// file here.
async fn listen(proxy: Arc<Proxy>, listener: TcpListener, attrs: Attrs) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                _ = stream.set_nodelay(true);
                protocol::dial::keep_alive(&stream);
                let Some(greets) = session::Greets::new(&proxy) else {
                    Counters::add(&proxy.counters.refused);
                    continue;
                };
                let serve = session::serve(proxy.clone(), stream, address, attrs, greets);
                tokio::spawn(serve);
            }
            Err(e) => {
                warn!(error = %e, "could not accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn tick(proxy: Arc<Proxy>) {
    let mut every = tokio::time::interval(proxy.options.check_interval);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        proxy.event(Event::Tick);
    }
}

/// Keeps a task for each node that is asked how it is. They end with this one.
async fn watch_nodes(proxy: Arc<Proxy>, mut orders: UnboundedReceiver<Watching>) {
    let mut tasks = JoinSet::new();
    let mut nodes: HashMap<NodeId, AbortHandle> = HashMap::new();
    while let Some(order) = orders.recv().await {
        let old = match order {
            Watching::Begin(id) => nodes.insert(id, tasks.spawn(watch::watch(proxy.clone(), id))),
            Watching::End(id) => nodes.remove(&id),
        };
        if let Some(old) = old {
            old.abort();
        }
        while tasks.try_join_next().is_some() {}
    }
}
