//! What the sessions of a proxy share: clients, the router with what is known of nodes, counters.

use super::options::Options;
use super::proof;
use super::route::{Attrs, Command, Event, NodeId, Router, SessionId};
use base::{Error, Result, SqlState};
use parking_lot::Mutex;
use protocol::startup::REPORT_SETTINGS;
use protocol::tls::Acceptor;
use protocol::{Conninfo, Link};
use replica::proof::Secret;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tracing::info;

/// While a session waits for a node, nodes are asked as often as this.
const WAITING: Duration = Duration::from_millis(100);
/// A client that has not said by then what it wants is disconnected.
pub const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// The same of one that has not logged in.
pub const STARTUP_LIMIT: Duration = Duration::from_secs(60);
/// How long a client gets to take its last message.
pub const LINGER: Duration = Duration::from_secs(1);
/// After a node that could not be connected.
pub const PAUSE: Duration = Duration::from_millis(20);

/// What a node is asked to tell, beside what the client asked for.
pub const TELL: [(&str, &str); 2] = [(REPORT_SETTINGS, "on"), ("canon.report_token", "on")];

/// A client, for others: to cancel what it runs, to have it moved.
pub struct Client {
    pub secret: i32,
    pub wake: Notify,
    pub move_on: AtomicBool,
    /// Its node may keep it waiting for ever: 1, reads leave; 2, transactions too.
    pub pull: AtomicU8,
    /// Where its statements run, and the key of a cancel request there.
    pub at: Mutex<Option<(NodeId, [u8; 8])>>,
}

/// Which nodes are asked how they are.
pub enum Watching {
    Begin(NodeId),
    End(NodeId),
}

/// A proxy that runs.
pub struct Proxy {
    /// None: no TLS.
    pub tls: Option<Arc<Acceptor>>,
    pub options: Options,
    pub router: Mutex<Router>,
    /// What is known of nodes has changed.
    pub news: Notify,
    /// All nodes are to be asked at once how they are.
    pub ask: tokio::sync::watch::Sender<()>,
    pub clients: Mutex<HashMap<SessionId, Arc<Client>>>,
    /// Connections that have not said yet what they want.
    pub greeting: AtomicUsize,
    /// The cluster's, where the proxy has it.
    pub secret: Option<Secret>,
    /// To the task that has nodes asked.
    pub watches: UnboundedSender<Watching>,
    pub next: AtomicI32,
    pub closing: AtomicBool,
    pub env: env::Env,
    pub counters: Counters,
}

/// What is counted since the start.
#[derive(Default)]
pub struct Counters {
    pub accepted: AtomicU64,
    pub refused: AtomicU64,
    pub cancels: AtomicU64,
    /// Sessions that went on at another node: asked to, or because theirs was lost.
    pub moves: AtomicU64,
    pub losses: AtomicU64,
    /// Statements that were sent a second time, unseen.
    pub reruns: AtomicU64,
    /// Errors of our own that clients were told.
    pub told: AtomicU64,
}

impl Counters {
    pub fn add(n: &AtomicU64) {
        n.fetch_add(1, Ordering::Relaxed);
    }
}

impl Proxy {
    /// Tells the router, and does what it says.
    pub fn event(&self, event: Event) {
        let commands = self.router.lock().handle(event);
        for c in commands {
            match c {
                Command::Watch(id) => _ = self.watches.send(Watching::Begin(id)),
                Command::Forget(id) => {
                    info!(node = %self.node(id), "forgotten");
                    _ = self.watches.send(Watching::End(id));
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

    /// A node has refused what a session wanted: until it has been asked, which is now, it does not lead.
    pub fn refused(&self, id: NodeId) {
        self.event(Event::Refused(id));
        self.ask();
    }

    /// Something has changed at the nodes: asks all of them now.
    pub fn ask(&self) {
        self.ask.send_replace(());
    }

    /// Where a node is, with the proxy's own role.
    pub fn node(&self, id: NodeId) -> Conninfo {
        let address = self.router.lock().nodes[id].address.clone();
        let mut p = Conninfo::parse(&address).expect("nodes are added only with good addresses");
        p.user = self.options.user.clone();
        p.connect_timeout = Duration::from_secs(5);
        let o = &self.options;
        let mut p = p.secured(o.tls_cluster_ca.as_deref(), o.allow_plain_network);
        p.proves = proof::by_password(&p, self.secret.as_ref());
        p
    }

    /// A connection of the proxy's own role.
    pub async fn connect(&self, at: &Conninfo, parameters: &[(&str, &str)]) -> Result<Link> {
        proof::connect(at, parameters, self.secret.as_ref(), &self.env).await
    }

    /// A node could not be used for this. It is down, unless the want is the proxy's own.
    pub fn failed(&self, id: NodeId, why: &Error) {
        if why.code() != SqlState::INSUFFICIENT_RESOURCES {
            self.event(Event::Down(id));
        }
    }

    /// Waits until such a session may not be at this node any more.
    pub async fn unfit(&self, node: NodeId, attrs: Attrs) {
        loop {
            let news = self.news.notified();
            if !self.router.lock().fits(node, attrs) {
                return;
            }
            news.await;
        }
    }

    /// The node for a session, waiting for one within what is left of the time.
    pub async fn pick(
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
            // A session waits for what the nodes are going to say.
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
