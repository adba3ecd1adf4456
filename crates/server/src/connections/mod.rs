//! The wire protocol: sockets in, sessions behind.
//!
//! ```text
//! listener -> connection task: startup.rs (who is it; TLS) -> connection.rs (messages) -> sql::session
//!                              wire.rs (bytes in and out), the crate `protocol` (messages)
//!                              cores.rs (threads), socket.rs; waiting.rs (before there is a node)
//! clock task: every few milliseconds, time limits of statements and lock waits
//! ```
//! `pgwire` gives the messages of the start and the rarer replies; the loop over messages and the data path are our own, so that
//! a reply is written once, into the buffer that is sent, and sent when the client can use it (the costs of both ways stand in
//! the decisions).
//!
//! Connections of replicas go to `replication::send` after their start. At a replica, what a session may not run goes on at the primary
//! (`forward`).
//!
//! Left out on purpose: protocol 2.

pub(crate) mod connection;
mod core_choice;
pub(crate) mod cores;
mod keeper;
mod look;
mod lost;
mod metered;
mod seats;
pub(crate) mod socket;
pub(crate) mod startup;
pub(crate) mod tell;
pub(crate) mod visitor;
pub mod waiting;
pub mod wire;

use crate::entrance::Entrance;
use crate::forward::{Pool, relay::Forwarder};
use crate::replication::{Senders, members, send};
use base::{Error, Result, SqlState};
use connection::End;
use cores::{Core, Cores};
use seats::{Seats, Standing};
use service::room::{Notice, Room};
use socket::{Inner, Socket};
use sql::engine::Engine;
use sql::session::{ClientSide, Reason, Severity, Shared};
use startup::Started;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;
use tracing::{debug, info, warn};
use visitor::{Origin, Visitor};
use wire::{Stream, Wire};

/// At the end of a server, before reads that wait for its primary are told that it ends.
const READS_LIMIT: Duration = Duration::from_secs(1);
/// Who has not said who he is by then is disconnected.
const STARTUP_LIMIT: Duration = Duration::from_secs(60);
/// How long a client gets to take the error that ends its connection.
const LINGER: Duration = Duration::from_secs(1);
/// Places beside `max_connections` for connections that have not proven who they are.
const MORE: usize = 256;
/// How often time limits are looked at.
const TICK: Duration = Duration::from_millis(5);

/// Most files that connections have open: those that are seated, and those that have not proven who they are.
pub fn most_open(max_connections: u32) -> u64 {
    2 * u64::from(max_connections) + MORE as u64
}

/// The server's side of all connections.
pub struct Connections<E: Engine> {
    pub shared: Arc<Shared<E>>,
    pub entrance: Entrance,
    secret: [u8; 32],
    looks: look::Looks,
    /// Connections that have not proven who they are.
    unproven: Arc<Room>,
    /// Those that have, up to `max_connections`.
    seats: Arc<Seats>,
    open: AtomicUsize,
    closing: AtomicBool,
    /// Then replicas go, too; how many of the connections they are.
    sessions_over: AtomicBool,
    shipping: AtomicUsize,
    changed: Notify,
    /// Who ships the log to replicas that connect.
    pub senders: Arc<Senders>,
    /// The way to the primary, of a node that follows one.
    pub forward: Option<Arc<Pool>>,
    cores: Cores,
    /// Connections taken and refused since the start.
    pub accepted: AtomicUsize,
    pub refused: AtomicUsize,
}

impl<E: Engine> Connections<E> {
    /// Inside of a runtime, whose timers the connections use. They run on `cores` threads of their own.
    pub fn new(
        shared: Arc<Shared<E>>,
        cores: usize,
        entrance: Entrance,
        senders: Arc<Senders>,
        forward: Option<Arc<Pool>>,
    ) -> Result<Arc<Connections<E>>> {
        let mut secret = [0; 32];
        shared.host.random(&mut secret);
        let cores = Cores::start(cores).map_err(|e| {
            Error::new(
                SqlState::SYSTEM_ERROR,
                format!("could not start the connections' threads: {e}"),
            )
        })?;
        let most = shared.max_connections as usize;
        Ok(Arc::new(Connections {
            // As many may log in at the same time as may be there.
            unproven: Room::of(most + MORE),
            seats: Seats::of(most),
            shared,
            entrance,
            secret,
            looks: look::Looks::default(),
            open: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            sessions_over: AtomicBool::new(false),
            shipping: AtomicUsize::new(0),
            changed: Notify::new(),
            senders,
            forward,
            cores,
            accepted: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        }))
    }

    /// Connections there are.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// How many times a connection went to another core.
    pub fn moves(&self) -> usize {
        self.cores.moves()
    }

    /// Keeps time limits, and long statements from holding up others. Runs until the server is closed and empty.
    pub async fn keep_time(self: Arc<Self>) {
        let mut every = tokio::time::interval(TICK);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut keeper = keeper::Keeper::new(&self);
        while !self.closing.load(Ordering::SeqCst) || self.open() > 0 {
            every.tick().await;
            self.cores.watch();
            let now = self.shared.host.monotonic_millis();
            self.shared.sessions.tick(now);
            keeper.tick(now);
            self.forward.as_ref().inspect(|pool| pool.prune());
            self.shared.deliver();
        }
    }

    /// Takes connections from a TCP listener until [`Connections::close`].
    pub async fn listen(self: Arc<Self>, listener: TcpListener) {
        while let Some(accepted) = self.next(listener.accept()).await {
            match accepted {
                Ok((stream, address)) => {
                    // Replies are small and awaited.
                    _ = stream.set_nodelay(true);
                    protocol::dial::keep_alive(&stream);
                    let origin = Origin {
                        address: Some(address),
                        local: is_local(&address),
                    };
                    let from = socket2::SockRef::from(&stream).cpu_affinity().ok();
                    let stream = stream.into_std().map(mio::net::TcpStream::from_std);
                    self.clone().spawn(stream, origin, from);
                }
                Err(e) => accept_failed(&e).await,
            }
        }
    }

    /// Takes connections from a Unix socket until [`Connections::close`].
    pub async fn listen_unix(self: Arc<Self>, listener: UnixListener) {
        while let Some(accepted) = self.next(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => {
                    let origin = Origin {
                        address: None,
                        local: true,
                    };
                    let stream = stream.into_std().map(mio::net::UnixStream::from_std);
                    self.clone().spawn(stream, origin, None);
                }
                Err(e) => accept_failed(&e).await,
            }
        }
    }

    async fn next<T>(&self, accept: impl Future<Output = T>) -> Option<T> {
        let closed = async {
            while !self.closing.load(Ordering::SeqCst) {
                self.changed.notified().await;
            }
        };
        tokio::select! {
            biased;
            () = closed => None,
            t = accept => Some(t),
        }
    }

    fn spawn<T: Inner + 'static>(
        self: Arc<Self>,
        stream: std::io::Result<T>,
        origin: Origin,
        from: Option<usize>,
    ) {
        let core = self.cores.pick(from).clone();
        let socket = match stream.and_then(|s| Socket::new(s, core.clone())) {
            Ok(mut s) => {
                s.may_move();
                s
            }
            Err(e) => return warn!(error = %e, "could not take a connection"),
        };
        let (own, peer) = (core.clone(), socket.peer());
        self.open.fetch_add(1, Ordering::SeqCst);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let (place, mut notice) = self.unproven.enter();
        let account = self.shared.sessions.memory.account();
        let serve = async move {
            let left = Left(&*self);
            let mut wire = Wire::new(socket);
            let mut standing = Standing::new(place, self.seats.clone());
            let whole = (&mut wire, peer);
            let starting = (&mut standing, &mut notice);
            let end = self.serve(whole, &origin, starting, &own).await;
            if let End::Fatal(e) = end {
                debug!(code = %e.code(), error = %e, "connection ended");
                wire.out.error(Severity::Fatal, &e);
                tokio::select! {
                    // Whoever does not read it does not get it.
                    _ = tokio::time::timeout(LINGER, wire.last_words()) => {}
                    () = notice.given() => {}
                }
            }
            drop((wire, standing));
            drop(left);
        };
        core.run(metered::Metered::new(serve, account));
    }

    async fn serve<T: Inner + 'static>(
        &self,
        (wire, peer): (&mut Wire<Socket<T>>, Arc<dyn ClientSide>),
        origin: &Origin,
        (standing, notice): (&mut Standing, &mut Notice),
        core: &Arc<Core>,
    ) -> End {
        let starting = startup::start(wire, self, origin, standing);
        let started = tokio::select! {
            started = tokio::time::timeout(STARTUP_LIMIT, starting) => started,
            // It may wait for this server to serve, which it will not.
            () = self.over() => return End::Client,
            () = notice.given() => {
                debug!("a connection that has not proven itself makes room for another one");
                return End::Client;
            }
        };
        let started = match started {
            Err(_) => return End::Client,
            Ok(Err(e)) if e.code() == SqlState::CONNECTION_FAILURE => return End::Client,
            Ok(Err(e)) => {
                if standing.was_refused() {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
                return End::Fatal(e);
            }
            Ok(Ok(None)) => return End::Client,
            Ok(Ok(Some(s))) => s,
        };
        if wire.send().await.is_err() {
            return End::Client;
        }
        if let (Started::Session(session), Some(socket)) = (&started, wire.stream.socket())
            && session.handle().activity.lock().between_nodes
        {
            // A node that is cut off may have locks here that others wait for.
            socket.notice_loss();
        }
        match started {
            Started::Session(mut session) => {
                session.handle().set_peer(peer);
                wire.session = Some(session.handle().clone());
                let way = self.forward.as_ref().filter(|_| !session.is_adopted());
                let mut forward = way.map(|p| Forwarder::new(p.clone(), core.clone()));
                if forward.is_some() {
                    session.allow_forwarding();
                }
                connection::serve(wire, &mut session, forward.as_mut()).await
            }
            Started::Replica(visitor) => self.ship(wire, origin, visitor).await,
            Started::Terms => End::Client,
            Started::Control => {
                let control = self.senders.control.get();
                let served = members::serve(wire, control);
                tokio::select! {
                    r = served => match r {
                        Err(e) if e.code() != SqlState::CONNECTION_FAILURE => End::Fatal(e),
                        _ => End::Client,
                    },
                    () = self.over() => End::Client,
                }
            }
        }
    }

    /// Ready when the server closes and its last session has ended.
    async fn over(&self) {
        loop {
            let changed = self.changed.notified();
            if self.sessions_over.load(Ordering::SeqCst) {
                return;
            }
            changed.await;
        }
    }

    /// Serves a replica until it goes or the server closes.
    async fn ship<S: Stream>(&self, wire: &mut Wire<S>, origin: &Origin, visitor: Visitor) -> End {
        // Not before the last session: its commit may wait for this replica.
        let closing = self.over();
        self.shipping.fetch_add(1, Ordering::SeqCst);
        let _shipped = Shipped(&self.shipping);
        let ended = tokio::select! {
            r = send::serve(wire, &self.senders, origin, visitor) => r,
            () = closing => Ok(()),
        };
        match ended {
            Ok(()) => End::Client,
            Err(e) if e.code() == SqlState::CONNECTION_FAILURE => {
                info!(error = %e, "a replica is gone");
                End::Client
            }
            Err(e) => End::Fatal(e),
        }
    }

    /// Stops taking connections, lets running transactions end within `limit`, then ends the rest. Replicas stay until then: commits may
    /// wait for them. Reads that wait for their primary are ended sooner: where it is gone, they would wait for nothing.
    pub async fn close(&self, limit: Duration) {
        self.closing.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
        let began = tokio::time::Instant::now();
        let until = began + limit;
        // Sessions leave by themselves where nothing is under way; connections that never became one are not waited for.
        let mut quiet = 0;
        let sessions_open = || self.open() > self.shipping.load(Ordering::SeqCst);
        while sessions_open() && quiet < 25 && tokio::time::Instant::now() < until {
            let sessions = self.shared.sessions.list();
            sessions.iter().for_each(|h| h.leave());
            if began.elapsed() > READS_LIMIT {
                let waits = |h: &&Arc<sql::session::Handle>| {
                    h.activity.lock().waits == Some(sql::session::Waits::Freshness)
                };
                let waiting = sessions.iter().filter(waits);
                waiting.for_each(|h| h.interrupt(Reason::Terminate));
            }
            let busy = |h: &Arc<sql::session::Handle>| h.activity.lock().state != "idle";
            quiet = if sessions.iter().any(busy) {
                0
            } else {
                quiet + 1
            };
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let left = self.shared.sessions.list();
        left.iter().for_each(|h| h.interrupt(Reason::Terminate));
        if !left.is_empty() {
            warn!("transactions that did not end in time were rolled back");
        }
        // Told to end, they do so at their next step.
        self.sessions_over.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
        for _ in 0..100 {
            if self.open() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if let Some(pool) = &self.forward {
            pool.clear();
        }
        self.cores.stop();
        info!(left = self.open(), "connections are closed");
    }
}

/// A replica is counted until it is gone.
struct Shipped<'a>(&'a AtomicUsize);

impl Drop for Shipped<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A connection is counted until it is gone, also when it panics.
struct Left<'a, E: Engine>(&'a Connections<E>);

impl<E: Engine> Drop for Left<'_, E> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

async fn accept_failed(e: &std::io::Error) {
    warn!(error = %e, "could not accept a connection");
    // Out of file descriptors, usually: wait for some to come back.
    tokio::time::sleep(Duration::from_millis(50)).await;
}

fn is_local(a: &SocketAddr) -> bool {
    is_loopback(&a.ip())
}

/// Whether only this machine has this address.
pub(crate) fn is_loopback(a: &IpAddr) -> bool {
    a.to_canonical().is_loopback()
}

/// The socket that libpq looks for in this directory.
pub fn unix_path(directory: &Path, port: u16) -> PathBuf {
    directory.join(format!(".s.PGSQL.{port}"))
}

/// Binds a Unix socket, removing one that nobody listens on any more.
pub fn bind_unix(path: &Path) -> Result<UnixListener> {
    if path.exists() && std::os::unix::net::UnixStream::connect(path).is_err() {
        _ = std::fs::remove_file(path);
    }
    UnixListener::bind(path).map_err(|e| {
        Error::new(
            SqlState::SYSTEM_ERROR,
            format!("could not listen on {}: {e}", path.display()),
        )
    })
}
