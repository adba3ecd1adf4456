//! `canon start`: a node, its connections, its HTTP port, from the first log line to the last.
//!
//! ```text
//! configuration checked -> runtime -> HTTP up (not ready) -> node opens, recovers -> connections listens -> replicas are asked -> ready
//! SIGTERM, SIGINT: not ready -> connections closes within the limit -> node stops: everything flushed
//! ```
//! A replica first gets a copy of its primary's database if it has none, and asks the primary whether their histories agree before it
//! serves. When it has to begin anew (it was away for too long, or has commits that the cluster's history has not), the server
//! stops and starts within the process ([`run`]); its sessions end with 57P01. Where that cannot be done the process begins anew ([`ending`]).

mod ending;

use crate::config::{Config, LogFormat};
use crate::connections::waiting::{Door, WaitingRoom};
use crate::connections::{self, Connections};
use crate::console::Pages;
use crate::control::{Outsider, Seat};
use crate::forward::Pool;
use crate::host::ServerHost;
use crate::metrics::Metrics;
use crate::replication::archive::Archiving;
use crate::replication::shared::Exposed;
use crate::replication::{
    Follow, Membership, Place, Restart, Senders, Site, StrongReads, Word, ask, bootstrap,
};
pub use ending::Held;

use base::region::Region;
use base::{Error, Result, SqlState};
use embedded::engine::{ClusterView, NodeEngine};
use ending::{Holders, begin_anew, end_node};
use node::{House, Leases, Node, NodeOptions};
use protocol::tls::Acceptor;
use replica::replay::ReplayOptions;
use service::{http, runtime, stop_signal, system};
use sql::session::Shared;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

/// The database of a new directory, and its superuser.
pub use protocol::DATABASE;

/// A server that runs.
pub struct Server {
    pub connections: Arc<Connections<NodeEngine>>,
    pub node: Arc<Node>,
    pub place: Arc<Place>,
    pub metrics: Arc<Metrics>,
    pub listening: Vec<SocketAddr>,
    unix: Vec<std::path::PathBuf>,
    tasks: Tasks,
    limit: Duration,
}

/// Logs as the configuration says; once per process.
pub fn start_logging(config: &Config) {
    // The consensus speaks of each of its steps; what comes of them is said here.
    let level = format!("openraft=error,{}", config.log_level);
    let filter = tracing_subscriber::EnvFilter::new(level);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // It would be said with a panic where standard error cannot be written.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    _ = match config.log_format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    // What the crates below have to say: full disks, damage, why the process ends.
    env::say::set_logger(|level, words| match level {
        env::say::Level::Warning => warn!(target: "canon::node", "{words}"),
        env::say::Level::Error => error!(target: "canon::node", "{words}"),
    });
}

/// Whether [`start_logging`] was called.
pub fn is_logging() -> bool {
    tracing::dispatcher::has_been_set()
}

/// Logs why a server did not start or ended: message, DETAIL and HINT.
pub fn log_failure(e: &Error) {
    let f = e.fields();
    error!(code = %e.code(), detail = %f.detail, hint = %f.hint, "{}", f.message);
}

/// How long a server may take to end before another one starts in its process, beside the time that its transactions have.
const END: Duration = Duration::from_secs(60);

/// Files that a server has open beside its connections, near enough.
const FILES: u64 = 128;

/// A connection is a file to the system, which commonly allows a process 1024 until it asks for more.
fn raise_open_files(config: &Config) {
    let limit = env::disk::raise_open_files();
    let wanted = connections::most_open(config.max_connections) + FILES;
    if let Some(limit) = limit.filter(|limit| *limit < wanted) {
        warn!(
            limit,
            "the limit of open files (ulimit -n) is below what max_connections needs, {wanted}"
        );
    }
}

/// Runs a server until it is told to stop.
pub fn run(config: Config) -> Result<()> {
    start_logging(&config);
    crate::audit::configuration(&config);
    if !config.foreign.is_empty() {
        let names = config.foreign.join(", ");
        warn!("variables that mean nothing here: {names}");
    }
    raise_open_files(&config);
    let runtime = runtime()?;
    match runtime.block_on(live(config))? {
        Over::Ended => {
            runtime.shutdown_timeout(Duration::from_secs(1));
            Ok(())
        }
        Over::Anew => Err(begin_anew()),
    }
}

/// How the last server of a process ended.
enum Over {
    Ended,
    /// Another one cannot start in this process.
    Anew,
}

/// The servers of this process, one after the other.
async fn live(mut config: Config) -> Result<Over> {
    let (mut restart, mut first) = (None, true);
    let stop = stop_signal();
    let mut stop = std::pin::pin!(stop);
    let seat = Seat::open(&config).await?;
    loop {
        // A signal during recovery ends the process there: nothing is lost by it.
        let started = tokio::select! {
            started = Server::start_or_held(&config, restart.take(), Some(&seat), None) => started,
            name = &mut stop => {
                info!(signal = name?, "stopped before it was ready");
                std::process::exit(0);
            }
            // A start may wait for a primary, and a node that was taken out for one that it does not find.
            e = seat.ended() => {
                error!("{}; stopped before it was ready", e.fields().message);
                return Err(e);
            }
            () = seat.left() => {
                info!("this server has left its cluster; stopped before it was ready");
                return Ok(Over::Ended);
            }
        };
        let server = match started {
            Ok(Ok(server)) => server,
            Ok(Err(_)) => return Ok(Over::Anew),
            Err(e) if first => return Err(e),
            Err(e) => {
                log_failure(&e);
                return Ok(Over::Anew);
            }
        };
        first = false;
        // That was for one start.
        config.accept_log_end = None;
        let over = tokio::select! {
            name = &mut stop => {
                info!(signal = name?, limit = ?config.shutdown_timeout, "stopping");
                return match server.stop().await {
                    0 => Ok(Over::Ended),
                    n => Err(system(format!(
                        "stopped on a full disk: {n} commits that waited for room are not in the log"
                    ))),
                };
            }
            e = server.lost() => {
                error!("{}; stopping", e.fields().message);
                server.stop_at_once().await;
                return Err(e);
            }
            e = seat.ended() => {
                error!("{}; stopping", e.fields().message);
                server.stop_at_once().await;
                return Err(e);
            }
            () = seat.left() => {
                info!("this server has left its cluster; stopping");
                server.stop().await;
                return Ok(Over::Ended);
            }
            why = server.restart() => {
                warn!("{why}; starting again");
                restart = Some(why);
                server
            }
            // What runs here can commit no more.
            () = seat.moved() => server.at_once(),
        };
        seat.hears(false);
        // A signal meanwhile is for the process, which would not hear of it anew.
        let mut room = std::pin::pin!(over.makes_room());
        let mut signal = None;
        let room = loop {
            tokio::select! {
                room = &mut room => break room,
                name = &mut stop, if signal.is_none() => signal = Some(name?),
            }
        };
        if let Some(signal) = signal {
            info!(signal, "stopped");
            return Ok(Over::Ended);
        }
        if !room {
            return Ok(Over::Anew);
        }
    }
}

impl Server {
    /// Starts a server. Call inside of a runtime with several threads.
    pub async fn start(config: &Config) -> Result<Server> {
        Server::start_again(config, None).await
    }

    /// Starts a server that was stopped because of this ([`Server::restart`]).
    pub async fn start_again(config: &Config, restart: Option<Restart>) -> Result<Server> {
        Server::start_as_member(config, restart, None, None).await
    }

    /// The same in a house that this process has for several servers.
    pub async fn start_in(
        house: &Arc<House>,
        config: &Config,
        restart: Option<Restart>,
    ) -> Result<Server> {
        Server::start_as_member(config, restart, None, Some(house)).await
    }

    /// The same of a server whose place in its cluster others have a say in.
    pub async fn start_as_member(
        config: &Config,
        restart: Option<Restart>,
        seat: Option<&Arc<Seat>>,
        house: Option<&Arc<House>>,
    ) -> Result<Server> {
        Ok(Server::start_or_held(config, restart, seat, house).await??)
    }

    /// The same. [`Held`]: a start that was given up on the way left a node that is in use still.
    async fn start_or_held(
        config: &Config,
        mut restart: Option<Restart>,
        seat: Option<&Arc<Seat>>,
        house: Option<&Arc<House>>,
    ) -> Result<std::result::Result<Server, Held>> {
        refuse_plain_network(config)?;
        loop {
            let arranged = match seat {
                // That is for one start, and the seat knows the settings of the first.
                Some(seat) => Some(Config {
                    accept_log_end: config.accept_log_end,
                    ..seat.arrange().await?
                }),
                None => None,
            };
            let config = arranged.as_ref().unwrap_or(config);
            match Server::start_once(config, restart.take(), seat, house).await? {
                Ok(server) => return Ok(Ok(server)),
                // It heard so before it served.
                Err(Again::Anew(node, why)) => {
                    warn!("{why}");
                    if let Some(seat) = seat {
                        seat.hears(false);
                    }
                    if let Err(held) = end_node(node, &Holders::default()).await {
                        return Ok(Err(held));
                    }
                    restart = Some(why);
                }
                Err(Again::Elsewhere(before)) => {
                    if let Some(seat) = seat {
                        seat.hears(false);
                    }
                    restart = before;
                }
            }
        }
    }

    async fn start_once(
        config: &Config,
        restart: Option<Restart>,
        seat: Option<&Arc<Seat>>,
        house: Option<&Arc<House>>,
    ) -> Result<std::result::Result<Server, Again>> {
        let env = env::Env::os();
        let member = Arc::new(Membership::of(config, &env)?);
        let config = &Config {
            replica_of: (config.replica_of.clone()).map(|p| p.as_member(member.clone())),
            ..config.clone()
        };
        // A new directory has no user with a password: no need to make it to know.
        if !config.data.exists() {
            refuse_open_door(config, false)?;
        }
        let mut front = Front::open(config, seat, &member).await?;
        let Some(failed) = front.fill(config, restart, seat).await? else {
            front.close().await;
            return Ok(Err(Again::Elsewhere(restart)));
        };
        let (exposed, region) = match config.shared_memory {
            true => expose(),
            false => (None, None),
        };
        let node = Arc::new(open(config, region, house).await?);
        tokio::task::block_in_place(|| member.keep(&config.data))?;
        if config.replica_of.is_none() {
            // Until its replicas were asked.
            node.hold(!node.dir().known_replicas().map_err(system)?.is_empty());
            stay_sealed(&node).await?;
        }
        let tasks = &mut front.tasks;
        let senders = ship(config, &env, &node, exposed, member, tasks).await?;
        let follow = follow(config, &env, &node, failed, &mut front);
        if let Some(follow) = &follow
            && let Some(restart) = agree(follow, &node).await?
        {
            front.close().await;
            return Ok(Err(Again::Anew(node, restart)));
        }
        let place = Arc::new(Place {
            set_aside: node.dir().set_aside_before().map_err(system)?,
            node: node.clone(),
            senders,
            follow,
            strong_reads: read_freshly(config, &node, &env, &mut front.tasks),
            site: be_site(config, &node, &mut front.tasks),
        });
        seat.map_or_else(|| Outsider::attach(&place), |seat| seat.attach(&place));
        let connections = connections_over(&place, config, env)?;
        let listeners = front.listeners().await;
        tokio::spawn(connections.clone().keep_time());
        let (listening, unix) = take_clients(&connections, config, listeners)?;
        _ = front
            .metrics
            .source
            .set((place.clone(), connections.clone()));
        front.metrics.phase.serving();
        let server = Server {
            connections,
            node,
            place,
            metrics: front.metrics,
            listening,
            unix,
            tasks: front.tasks,
            limit: config.shutdown_timeout,
        };
        server.serve(config).await.map(Ok)
    }

    /// A primary asks its replicas whether any of them has more than it has; then it says that it is ready, once it is.
    async fn serve(mut self, config: &Config) -> Result<Server> {
        if self.node.is_held()
            && let Err(e) = ask::before_serving(&self.place.senders, &config.node_name).await
        {
            self.stop_at_once().await;
            return Err(e);
        }
        match self.node.is_open() {
            true => say_ready(config),
            false => {
                warn!("not serving yet: {}", self.place.waits_for());
                let (node, config) = (self.node.clone(), config.clone());
                self.tasks.spawn(async move {
                    node.opened().await;
                    say_ready(&config);
                });
            }
        }
        Ok(self)
    }

    /// Ready when this server has to start again, which [`Server::start_again`] must be told.
    pub async fn restart(&self) -> Restart {
        match &self.place.follow {
            Some(f) => f.restart().await,
            None => std::future::pending().await,
        }
    }

    /// Ready when this primary has lost log that a replica holds: it serves nobody any more, for this reason, and is to be stopped.
    pub async fn lost(&self) -> Error {
        self.place.senders.lost().await
    }

    /// Ends everything now: no transaction that runs can commit any more.
    pub async fn stop_at_once(self) -> u64 {
        self.at_once().stop().await
    }

    /// Its transactions have no time to end.
    fn at_once(mut self) -> Server {
        self.limit = Duration::ZERO;
        self
    }

    /// Lets running transactions end within the limit, then ends everything. How many commits had no room on the disk and are given up.
    pub async fn stop(self) -> u64 {
        self.end().await.unwrap_or_else(|held| held.given_up)
    }

    /// Ends this server so that another one may start in its process. False: that cannot be done, which the log says.
    async fn makes_room(self) -> bool {
        let limit = self.limit + END;
        match tokio::time::timeout(limit, self.end()).await {
            Ok(Ok(_)) => true,
            Ok(Err(_)) => false,
            Err(_) => {
                error!(?limit, "the server does not end");
                false
            }
        }
    }

    /// The parts that hold the node.
    fn holders(&self) -> Holders {
        let place = &self.place;
        let mut all = Holders::default();
        all.add("connections", &self.connections);
        all.add("sessions, or work for the members", place);
        all.add("what sends the log", &place.senders);
        if let Some(follow) = &place.follow {
            all.add("what follows the primary", follow);
        }
        if let Some(reads) = &place.strong_reads {
            all.add("strong reads", reads);
        }
        if let Some(site) = &place.site {
            all.add("what makes it a site", site);
        }
        all
    }

    /// The same for a process in which another server is to start over the directory. [`Held`]: it cannot.
    pub async fn end(mut self) -> std::result::Result<u64, Held> {
        self.metrics.phase.stopping();
        for path in &self.unix {
            _ = std::fs::remove_file(path);
        }
        if let Some(strong_reads) = &self.place.strong_reads {
            strong_reads.close();
        }
        self.connections.close(self.limit).await;
        self.tasks.end().await;
        let (node, holders) = (self.node.clone(), self.holders());
        if env::fault::planted("server.held_at_end") {
            std::mem::forget(self.place.clone());
        }
        drop((self.connections, self.place, self.metrics, self.node));
        let ended = end_node(node, &holders).await;
        if ended.is_ok() {
            info!("stopped");
        }
        ended
    }
}

/// Why a server does not run yet.
enum Again {
    /// What is here has to be made anew.
    Anew(Arc<Node>, Restart),
    /// The primary is another one than at the start. With what the last life asked for.
    Elsewhere(Option<Restart>),
}

/// What a server shows before it has a database: its HTTP pages, and its addresses, which nothing else can take then. They are bound before the
/// directory is touched, so that a port in use costs nothing, and served after recovery.
struct Front {
    metrics: Arc<Metrics>,
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    /// Where other members are heard while the copy here is opened, however long that takes.
    early: Option<WaitingRoom>,
    tasks: Tasks,
}

impl Front {
    async fn open(
        config: &Config,
        seat: Option<&Arc<Seat>>,
        member: &Arc<Membership>,
    ) -> Result<Front> {
        let mut tasks = Tasks::default();
        let metrics = Arc::new(Metrics::default());
        let pages = Arc::new(Pages::new(metrics.clone(), config.entrance.clone()));
        for address in &config.http {
            let listener = bind(address).await?;
            info!(address = %listener.local_addr().map_err(system)?, "HTTP");
            tasks.spawn(http::serve(listener, pages.clone()));
        }
        let mut listeners = Vec::new();
        for address in &config.listen {
            listeners.push(bind(address).await?);
        }
        let addresses = listeners.iter().filter_map(|l| l.local_addr().ok());
        let addresses = addresses.collect();
        renew_certificates(config, &mut tasks);
        let tls = config.entrance.tls.clone();
        let early = seat.and_then(|seat| hear_early(seat, member, &mut listeners, tls));
        Ok(Front {
            metrics,
            listeners,
            addresses,
            early,
            tasks,
        })
    }

    /// Fills the directory of a replica that has no database. How many copies in a row did not come; none: the primary is another one now, and there is
    /// nothing here yet.
    async fn fill(
        &mut self,
        config: &Config,
        restart: Option<Restart>,
        seat: Option<&Arc<Seat>>,
    ) -> Result<Option<u32>> {
        let Some(primary) = &config.replica_of else {
            return Ok(Some(0));
        };
        // Where there is a database, it is not long before that is served, or says why not.
        let empty = tokio::task::block_in_place(|| bootstrap::is_wanting(config))?;
        let mut room = None;
        if empty && self.early.is_none() {
            let what = format!("a copy of {primary} is to come");
            let why = format!("the database system is starting up: {what}");
            let all = std::mem::take(&mut self.listeners);
            room = Some(WaitingRoom::open(all, why, config.entrance.tls.clone()));
        }
        // A member without a database had one.
        let lost = empty && seat.is_some_and(|s| s.me().is_some());
        let copies = lost || (Some(Restart::Stranded) != restart && restart.is_some());
        let marked = match seat.filter(|_| copies) {
            Some(seat) => tokio::task::block_in_place(|| seat.begin_copy())?,
            None => false,
        };
        let copied = bootstrap::prepare(config, primary, restart);
        let prepared = match seat.filter(|_| empty) {
            // A copy that breaks off leaves nothing that the next one does not take away.
            Some(seat) => tokio::select! {
                prepared = copied => prepared.map(Some),
                () = seat.has_another_primary(primary) => Ok(None),
            },
            None => copied.await.map(Some),
        };
        if let Some(room) = room {
            self.listeners = room.close().await;
        }
        let prepared = prepared?;
        // The log was only cut back: what the cluster has of it is here still.
        let cut_back = prepared.is_some_and(|p| !p.copied && p.failed == 0);
        if let (Some(seat), true) = (seat, marked && cut_back) {
            tokio::task::block_in_place(|| seat.end_copy());
        }
        Ok(prepared.map(|p| p.failed))
    }

    /// The address that others reach best.
    fn address(&self) -> Option<SocketAddr> {
        let far = self.addresses.iter().find(|a| !a.ip().is_loopback());
        far.or(self.addresses.first()).copied()
    }

    /// The listeners, for clients.
    async fn listeners(&mut self) -> Vec<TcpListener> {
        match self.early.take() {
            Some(room) => room.close().await,
            None => std::mem::take(&mut self.listeners),
        }
    }

    async fn close(mut self) {
        drop(self.listeners().await);
        self.tasks.end().await;
    }
}

/// The primary's side of the log, and of the terms that nodes tell each other.
async fn ship(
    config: &Config,
    env: &env::Env,
    node: &Arc<Node>,
    exposed: Option<Exposed>,
    member: Arc<Membership>,
    tasks: &mut Tasks,
) -> Result<Arc<Senders>> {
    let archive = Archiving::of(&config.archive, config.backup, env, node)?;
    if let Some(archive) = &archive {
        tasks.spawn(archive.clone().run());
        if let Some(backups) = &archive.backups {
            tasks.spawn(backups.clone().run());
        }
    }
    let rings = config.log_ring;
    let senders = Senders::new(node.clone(), env.clone(), archive, exposed, rings, member);
    let senders = Arc::new(senders);
    if let Some(primary) = &config.replica_of {
        let primary = primary.to_string();
        tokio::task::block_in_place(|| senders.herald.know(&primary));
    }
    tasks.spawn(senders.herald.clone().run(senders.clone()));
    let heard = node.heard_term();
    if config.replica_of.is_none() && heard > node.term() {
        let senders = senders.clone();
        let deposed = tokio::task::spawn_blocking(move || senders.depose(heard));
        deposed.await.map_err(system)?;
    }
    Ok(senders)
}

/// A replica begins to follow its primary. `failed`: copies in a row that did not come.
fn follow(
    config: &Config,
    env: &env::Env,
    node: &Arc<Node>,
    failed: u32,
    front: &mut Front,
) -> Option<Arc<Follow>> {
    let primary = config.replica_of.clone()?;
    let follow = Arc::new(Follow::new(
        primary,
        config.node_name.clone(),
        node.clone(),
        env.clone(),
        failed,
        config.log_ring,
        front.address(),
    ));
    let running = follow.clone();
    front.tasks.spawn(async move { running.run().await });
    Some(follow)
}

/// Waits for the primary's first word. A reason where the replica has to begin anew.
async fn agree(follow: &Arc<Follow>, node: &Node) -> Result<Option<Restart>> {
    match follow.first_word().await? {
        Word::StartAgain(restart) => return Ok(Some(restart)),
        // What is published it says at once, if it knows.
        Word::Agreed => _ = tokio::time::timeout(Duration::from_secs(1), node.opened()).await,
        Word::PutOff | Word::Silent => {}
    }
    Ok(None)
}

/// The sessions of a node, and the connections that they are reached by.
fn connections_over(
    place: &Arc<Place>,
    config: &Config,
    env: env::Env,
) -> Result<Arc<Connections<NodeEngine>>> {
    let node = &place.node;
    let engine = Arc::new(NodeEngine::among(node.clone(), place.clone()));
    let mut shared = Shared::new(engine, Arc::new(ServerHost::new(env)), DATABASE);
    set_sessions(&mut shared, config);
    let catalog = node.catalog();
    let password = |r: &Arc<base::schema::Role>| r.login && r.password.is_some();
    refuse_open_door(config, catalog.schema.roles().any(password))?;
    let forward = config.replica_of.clone().map(|primary| {
        let place = place.clone();
        let pulse = move || place.follow.as_ref().and_then(|f| f.heard());
        Pool::new(primary, config.forward.clone(), Box::new(pulse))
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let entrance = config.entrance.clone();
    let senders = place.senders.clone();
    Connections::new(Arc::new(shared), cores, entrance, senders, forward)
}

/// Has other members heard while the copy here is opened.
fn hear_early(
    seat: &Arc<Seat>,
    membership: &Arc<Membership>,
    listeners: &mut Vec<TcpListener>,
    tls: Option<Arc<Acceptor>>,
) -> Option<WaitingRoom> {
    seat.me()?;
    let why = "the database system is starting up".to_owned();
    let door = Door {
        membership: membership.clone(),
        members: seat.clone(),
    };
    let room = WaitingRoom::with_door(std::mem::take(listeners), why, door, tls);
    seat.hears(true);
    Some(room)
}

/// The server takes clients from now on. The addresses, and the paths of its Unix sockets.
fn take_clients(
    connections: &Arc<Connections<NodeEngine>>,
    config: &Config,
    listeners: Vec<TcpListener>,
) -> Result<(Vec<SocketAddr>, Vec<std::path::PathBuf>)> {
    let (mut listening, mut unix) = (Vec::new(), Vec::new());
    for l in listeners {
        let address = l.local_addr().map_err(system)?;
        if let Some(directory) = config
            .unix_socket_directory
            .as_ref()
            .filter(|_| unix.is_empty())
        {
            let path = connections::unix_path(directory, address.port());
            let listener = connections::bind_unix(&path)?;
            info!(path = %path.display(), "listening");
            tokio::spawn(connections.clone().listen_unix(listener));
            unix.push(path);
        }
        info!(%address, "listening");
        listening.push(address);
        tokio::spawn(connections.clone().listen(l));
    }
    Ok((listening, unix))
}

fn say_ready(config: &Config) {
    info!(version = env!("CARGO_PKG_VERSION"), data = %config.data.display(), "ready");
}

/// Tasks that end when this is dropped before it is emptied.
#[derive(Default)]
struct Tasks(Vec<JoinHandle<()>>);

impl Tasks {
    fn spawn(&mut self, f: impl Future<Output = ()> + Send + 'static) {
        self.0.push(tokio::spawn(f));
    }

    async fn end(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
        for t in self.0.drain(..) {
            _ = t.await;
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Strong reads of a replica.
fn read_freshly(
    config: &Config,
    node: &Arc<Node>,
    env: &env::Env,
    tasks: &mut Tasks,
) -> Option<Arc<StrongReads>> {
    let primary = config.replica_of.clone()?;
    let name = config.node_name.clone();
    let strong_reads = Arc::new(StrongReads::new(primary, name, node.clone(), env.clone()));
    let running = strong_reads.clone();
    tasks.spawn(async move { running.run().await });
    Some(strong_reads)
}

/// Makes a replica a site, if it is to be one.
fn be_site(config: &Config, node: &Arc<Node>, tasks: &mut Tasks) -> Option<Arc<Site>> {
    let primary = config.replica_of.clone().filter(|_| config.site)?;
    let site = Site::new(primary, config.node_name.clone(), node);
    node.be_site(site.clone());
    let running = site.clone();
    tasks.spawn(async move { running.run().await });
    Some(site)
}

/// Defaults of session settings. Reads at a site see what their session has written, and ask the primary only where that is wanted.
fn session_defaults(config: &Config) -> Vec<(String, String)> {
    let mut all = config.settings.clone();
    let level = "canon.read_consistency";
    let site = config.site && config.replica_of.is_some();
    if site && !all.iter().any(|(name, _)| name == level) {
        all.push((level.into(), "session".into()));
    }
    all
}

/// A primary that handed over leads no more, also after a start: the one that it handed over to may.
async fn stay_sealed(node: &Arc<Node>) -> Result<()> {
    let heir = node.dir().sealed_for().map_err(system)?;
    if let Some(heir) = heir {
        warn!(
            to = heir,
            "this node has handed over and takes no writes; start it with --replica-of the new primary"
        );
        let node = node.clone();
        tokio::task::spawn_blocking(move || node.seal())
            .await
            .map_err(system)??;
    }
    Ok(())
}

/// Listens there.
pub(crate) async fn bind(address: &SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|e| system(format!("could not listen on {address}: {e}")))
}

fn replay(config: &Config) -> ReplayOptions {
    ReplayOptions {
        policy: config.replay_policy,
        workers: match config.replay_workers {
            0 => env::Env::os().spawn.parallelism(),
            n => n as usize,
        },
        ..ReplayOptions::default()
    }
}

/// A region that replicas on this host can map, if there is memory for it; else it is this process's.
fn expose() -> (Option<Exposed>, Option<Arc<Region>>) {
    match Exposed::new(env::Env::os().random.next_u64()) {
        Ok((exposed, region)) => (Some(exposed), Some(region)),
        Err(e) => {
            info!(error = %e, "no shared memory: replicas on this host read over their connections");
            (None, None)
        }
    }
}

async fn open(
    config: &Config,
    region: Option<Arc<Region>>,
    house: Option<&Arc<House>>,
) -> Result<Node> {
    let options = NodeOptions {
        owner: DATABASE.into(),
        max_memory: config.max_memory,
        snapshot_max_age: config.snapshot_max_age,
        split_adjust: config.split_adjust,
        split_balance: config.split_balance,
        site_certification: config.site_certification,
        checkpoint_bytes: config.checkpoint_bytes,
        segment_bytes: config.segment_bytes,
        epoch_max_duration: config.epoch_max_duration,
        replica: config.replica_of.is_some(),
        replay: replay(config),
        synchronous_replicas: config.synchronous_replicas as usize,
        wal_keep_bytes: config.wal_keep_bytes,
        leases: config.lease_reads.then_some(Leases {
            max_commit_wait: config.lease_max_commit_wait,
            // The way to a site is long, and commits would wait for it.
            asks: !config.site,
        }),
        accept_log_end: config.accept_log_end,
        region,
        house: house.cloned(),
        on_recovery: Some(|done, all, rows, commits| {
            info!(
                done_bytes = done,
                all_bytes = all,
                rows,
                commits,
                "recovering"
            );
        }),
        ..NodeOptions::default()
    };
    let path = config.data.clone();
    let opened = tokio::task::spawn_blocking(move || Node::open(&path, options));
    let node = opened.await.map_err(system)??;
    node.set_compiler(Arc::new(sql::rules::Compiler));
    let r = node.report();
    if r.created {
        info!(path = %config.data.display(), "made a new database");
    } else {
        info!(
            rows = r.checkpoint_rows,
            commits = r.commits,
            last = %r.last,
            milliseconds = r.duration.as_millis() as u64,
            "recovered"
        );
    }
    if let Some(cut) = &r.cut {
        warn!("the end of the log was cut off: {cut}");
    }
    if let Some(what) = &r.accepted {
        warn!(end = %r.last, "the log was accepted without its end, as --accept-log-end asked: {what}");
    }
    Ok(node)
}

/// An address that others can reach, and no TLS: refused, unless it was asked for in so many words.
pub(crate) fn refuse_plain_network(config: &Config) -> Result<()> {
    let e = &config.entrance;
    if !config.on_network() || e.allow_plain_network || e.tls.is_some() {
        return Ok(());
    }
    Err(Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        "listening on an address that other machines can reach is refused without TLS",
    )
    .hint(
        "Set tls.certificate and tls.key, or start with --allow-plain-network, where all that is said can be read on its way.",
    ))
}

/// What the configuration says of sessions.
fn set_sessions(shared: &mut Shared<NodeEngine>, config: &Config) {
    shared.max_connections = config.max_connections;
    shared.defaults = session_defaults(config);
    shared.facts = config.entrance.settings();
    shared.sessions.memory.set_limit(config.memory_total);
}

/// Has certificates read again when others are there.
fn renew_certificates(config: &Config, tasks: &mut Tasks) {
    if let Some(tls) = &config.entrance.tls {
        tasks.spawn(tls.clone().keep(say_certificates));
    }
}

/// What came of a look at the certificates' files.
pub(crate) fn say_certificates(read: Result<()>) {
    match read {
        Ok(()) => info!("certificates are read again; new connections get them"),
        Err(e) => warn!(
            "certificates could not be read, the old ones stay: {}",
            e.fields().message
        ),
    }
}

/// An address that others can reach, and nobody with a password: refused, unless it was asked for in so many words.
fn refuse_open_door(config: &Config, someone_has_a_password: bool) -> Result<()> {
    // Where there are rules, a role without a password gets in only if they say so.
    let allowed = config.entrance.allow_passwordless_network || !config.entrance.access.is_empty();
    if !config.on_network() || allowed || someone_has_a_password {
        return Ok(());
    }
    Err(Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        "listening on an address that other machines can reach is refused while no user has a password",
    )
    .hint(
        "Start on 127.0.0.1 and say ALTER USER canon PASSWORD '…', or start with --allow-passwordless-network.",
    ))
}
