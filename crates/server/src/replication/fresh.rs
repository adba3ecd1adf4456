//! Strong reads at a replica: what sessions ask and wait for, and the tasks that read the primary's region for all of them.
//!
//! ```text
//! session ──▶ read_point ──▶ Lane::ask ──▶ known: at once
//!                               │   └──▶ a future: woken when a fetch lands
//!                               ▼
//!                    the lane's task ──▶ RemoteMemory ──▶ landed ──▶ wakes all
//! session ──▶ readable ──▶ Lane::check ──▶ now | slots are fetched | what is read becomes visible
//! ```
//! What is decided is decided in `replica::read`. While the primary cannot be asked, strong reads wait; nothing stale is served, and the
//! session gives up when its `canon.read_timeout` says so.
//!
//! Where the primary's words are mapped (`shared`), every read looks for itself: a few loads, in place. The slots of what it reads are
//! looked at only when more is published than this node shows.
//!
//! A timestamp that lands is also what the primary has published: replay is told, so that it shows what it has without waiting for
//! the next tick. And it says as of when that is the newest there was, which is all that a read asks that may be so old (`shown`).

use super::Primary;
use super::copy_both::{CopyBoth, lost};
use super::holds::Holds;
pub use super::lane::FreshStats;
use super::lane::{Alone, Lane};
use super::remote::{Tcp, connect, link};
use super::shared::Mapped;
use super::shown::{Found, Shown};
use crate::gate::cores::{self, Core};
use crate::gate::socket::Socket;
use base::region::{CLUSTER_WORDS, PUBLISHED_WORD, TERM_WORD, row_hash};
use base::{Error, Held, Position, Result, SqlState};
use env::Env;
use env::turns::afterwards;
use futures::FutureExt;
use futures::future::{Either, select};
use futures::stream::{FuturesUnordered, StreamExt};
use node::{Following, Node, Role};
use replica::read::{Ask, Check, Fetch, Level, Rejected, RemoteMemory, Touch, decide};
use sql::reading::{
    Consistency, ReadPoint, ReadPolicy, ReadWant, Reads, Touch as Touched, Waiting,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tracing::{info, warn};

/// Longest pause between tries to connect.
const MOST_BACKOFF: Duration = Duration::from_secs(1);
/// Before the primary is asked again whose answer could not be used.
pub(super) const AGAIN: Duration = Duration::from_millis(10);
/// Most cores with a connection of their own: the primary has to have room for all. The others share the one of whoever is no core.
const LANES: usize = 8;
/// How often it is looked whether this node follows still, and, for reads that may be old, what is published.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// Over a connection it is fetched at every so manieth look only, while there are no such reads.
const IDLE: u32 = 10;

fn word(words: &[AtomicU64], w: u32) -> Position {
    Position::from_u64(words[w as usize].load(SeqCst))
}

fn count(a: &AtomicU64) {
    a.fetch_add(1, Relaxed);
}

/// See the head of the file.
pub struct Fresh {
    pub(super) primary: Primary,
    pub(super) name: String,
    pub(super) node: Arc<Node>,
    env: Env,
    /// One for each core, and the one of whoever is no core.
    lanes: Vec<Arc<Lane>>,
    closed: AtomicBool,
    closing: Notify,
    /// None: it was promoted before this was made.
    following: Option<Arc<Following>>,
    /// The newest that replay was told.
    told: AtomicU64,
    shown: Shown,
    pub(super) holds: Arc<Holds>,
}

fn gone() -> Error {
    Error::new(
        SqlState::CANNOT_CONNECT_NOW,
        "this node has handed over and cannot know what its successor has committed",
    )
    .hint("Connect to the new primary, or SET canon.read_consistency = 'eventual'.")
}

/// What reads get at a node that leads, or has led: nothing newer is to be found elsewhere, or nobody here knows.
pub fn handed_over(node: &Node, want: &ReadWant) -> ReadPoint {
    let strong = !matches!(
        want.consistency,
        Consistency::Session | Consistency::Eventual
    );
    match node.role() {
        Role::Sealed if strong => ReadPoint::Wait(Box::pin(async { Err(gone()) })),
        Role::Primary if strong => leading(node),
        _ => ReadPoint::Newest,
    }
}

/// At a node that has become the primary: not before it shows what was acknowledged before.
fn leading(node: &Node) -> ReadPoint {
    match node.leads_soon() {
        None => ReadPoint::Newest,
        Some(published) => ReadPoint::Wait(Box::pin(async move {
            published.await;
            Ok(ReadPoint::Newest)
        })),
    }
}

/// The connection of this core's lane ends with it, however it does.
struct LaneEnded(Arc<Fresh>, usize);

impl Drop for LaneEnded {
    fn drop(&mut self) {
        let (fresh, lane) = (&self.0, &self.0.lanes[self.1]);
        lane.connected.store(false, Relaxed);
        lane.lost();
        let soon = fresh.now() + MOST_BACKOFF.as_nanos() as u64;
        lane.again.store(soon, Relaxed);
    }
}

impl Fresh {
    pub fn new(primary: Primary, name: String, node: Arc<Node>, env: Env) -> Fresh {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cores = cores.min(LANES);
        let lane = |_| Arc::new(Lane::new(node.cluster()));
        let (following, cluster) = (node.following(), node.cluster());
        Fresh {
            lanes: (0..=cores).map(lane).collect(),
            primary,
            name,
            node,
            env,
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            following,
            told: AtomicU64::new(0),
            shown: Shown::default(),
            holds: Arc::new(Holds::new(cluster)),
        }
    }

    /// What was done so far.
    pub fn stats(&self) -> FreshStats {
        let mut all = FreshStats::default();
        self.lanes.iter().for_each(|l| all.add(&l.stats));
        all
    }

    /// The term whose primary's answers count: a few loads.
    pub(super) fn followed(&self) -> u64 {
        let following = self.following.as_ref();
        following.map_or(0, |f| f.followed())
    }

    fn map(&self, words: Option<Mapped>) {
        let words = words.map(Arc::new);
        for lane in &self.lanes {
            lane.mapped.write().clone_from(&words);
        }
    }

    /// Whether the primary can be asked.
    pub fn is_connected(&self) -> bool {
        self.common().is_connected()
    }

    /// The lane of whoever is no core.
    fn common(&self) -> &Lane {
        self.lanes.last().expect("one at least")
    }

    /// The lane of this core, connected or not.
    fn own(&self) -> (usize, &Arc<Lane>) {
        let last = self.lanes.len() - 1;
        let n = cores::number().map_or(last, |n| n.min(last));
        (n, &self.lanes[n])
    }

    /// The lane for a read that is served here.
    fn lane(self: &Arc<Fresh>) -> &Arc<Lane> {
        let (n, own) = self.own();
        let last = self.lanes.len() - 1;
        if n == last || own.is_connected() {
            return own;
        }
        self.connect_lane(n);
        &self.lanes[last]
    }

    /// Nanoseconds of the clock that fetches are stamped with.
    pub fn now(&self) -> u64 {
        self.env.clock.monotonic_nanos()
    }

    /// A timestamp if there is one, or a place among those who wait for one. `reads`: this read asks for the first time.
    fn ask(&self, lane: &Lane, arrived: u64, reads: Option<&Reads<'_>>) -> Option<Position> {
        let touches = || {
            let all = reads.map(|r| r()).unwrap_or_default();
            all.iter().map(touch).collect()
        };
        let (counter, at) = match lane.ask(arrived, touches) {
            Ask::Known(at) => (&lane.stats.reused, Some(at)),
            Ask::Joined => (&lane.stats.joined, None),
            Ask::First => (&lane.stats.began, None),
        };
        if reads.is_some() {
            count(counter);
        }
        at
    }

    /// See `Engine::read_point`.
    pub fn read_point(self: &Arc<Fresh>, want: &ReadWant, reads: &Reads<'_>) -> ReadPoint {
        let arrived = match want.consistency {
            Consistency::Session | Consistency::Eventual => return ReadPoint::Newest,
            Consistency::Strong => want.arrived,
            // What was published when a fetch began that late is at most this old.
            Consistency::Bounded(age) => want.arrived.saturating_sub(age.as_nanos() as u64),
        };
        match self.node.role() {
            Role::Replica => {}
            _ => return handed_over(&self.node, want),
        }
        if matches!(want.policy, ReadPolicy::Stale | ReadPolicy::CommitWait) {
            return ReadPoint::Newest;
        }
        let visible = || self.node.marks().published.get();
        let began = match want.consistency {
            Consistency::Bounded(_) => match self.shown.find(want.arrived, arrived, visible) {
                Found::Shown => return ReadPoint::Newest,
                Found::At(at) => return ReadPoint::At(at),
                Found::Nothing => self.now(),
            },
            _ => arrived,
        };
        if let Some(at) = self.published_here(began) {
            count(&self.own().1.stats.looked);
            return ReadPoint::At(at);
        }
        match want.policy {
            ReadPolicy::Stale | ReadPolicy::CommitWait => ReadPoint::Newest,
            ReadPolicy::ReadWait => ReadPoint::Wait(Box::pin(self.clone().fetch_alone())),
            ReadPolicy::Tracker | ReadPolicy::Lamport => self.shared_fetch(want, arrived, reads),
        }
    }

    /// A timestamp of a fetch that others may join.
    fn shared_fetch(
        self: &Arc<Fresh>,
        want: &ReadWant,
        arrived: u64,
        reads: &Reads<'_>,
    ) -> ReadPoint {
        let lane = self.lane();
        let seen = lane.landed.version();
        // A node that is promoted wakes, once, who waits. Whoever begins to wait later finds that it follows no more.
        if self.node.role() != Role::Replica {
            return handed_over(&self.node, want);
        }
        match self.ask(lane, arrived, Some(reads)) {
            Some(at) => ReadPoint::At(at),
            None => {
                let lane = lane.clone();
                ReadPoint::Wait(Box::pin(self.clone().timestamp(arrived, lane, seen)))
            }
        }
    }

    /// *Published* of the primary, where its words are mapped: a fetch that takes no waiting. It began at this time, or later.
    fn published_here(&self, began: u64) -> Option<Position> {
        let (_, lane) = self.own();
        let mapped = lane.mapped.read();
        let mapped = mapped.as_deref()?;
        let followed = self.followed();
        let at = self.look(mapped, followed, |w| word(w, PUBLISHED_WORD))?;
        let visible = self.node.marks().published.get();
        if at > visible {
            self.tell(followed, at);
        }
        self.shown.told(followed, at, began, visible);
        Some(at)
    }

    /// Finds out what is published, for reads that may be old.
    fn ask_ahead(&self, looks: u32) {
        let now = self.now();
        // Before the log's connection has said whom it follows no answer counts.
        if self.published_here(now).is_some() || self.followed() == 0 {
            return;
        }
        if self.shown.is_wanted(now) || looks % IDLE == 1 {
            self.common().ask(now, Vec::new);
        }
    }

    /// Replay is told what is published in this term, once.
    pub(super) fn tell(&self, term: u64, at: Position) {
        let told = &self.told;
        if told.load(Relaxed) < at.as_u64()
            && told.fetch_max(at.as_u64(), Relaxed) < at.as_u64()
            && self.node.role() == Role::Replica
            && let Some(f) = &self.following
        {
            f.published(term, at);
        }
    }

    /// What `f` reads of mapped words counts if their node is the primary of this term, before and afterwards.
    fn look<T>(
        &self,
        mapped: &Mapped,
        followed: u64,
        f: impl FnOnce(&[AtomicU64]) -> T,
    ) -> Option<T> {
        let words = mapped.words();
        let [high, low] = CLUSTER_WORDS.map(|w| words[w as usize].load(SeqCst));
        let same = || words[TERM_WORD as usize].load(SeqCst) == followed;
        let ours = u128::from(high) << 64 | u128::from(low) == self.node.cluster();
        let found = (ours && followed != 0 && same()).then(|| f(words))?;
        (same() && mapped.is_alive()).then_some(found)
    }

    /// The check against mapped words; none: they do not help.
    fn check_here(&self, at: Position, visible: Position, touches: &[Touch]) -> Option<Check> {
        let mapped = self.own().1.mapped.read();
        let mapped = mapped.as_deref()?;
        self.look(mapped, self.followed(), |w| {
            // Slots are looked at when `at` has been published.
            let published = word(w, PUBLISHED_WORD) >= at;
            published.then(|| decide(at, visible, touches, |s| Some(word(w, s))).ok())?
        })?
    }

    /// An error, or an answer, of a node that follows no more.
    pub(super) fn follows(&self) -> Option<Result<ReadPoint>> {
        match self.node.role() {
            Role::Primary => Some(Ok(leading(&self.node))),
            Role::Sealed => Some(Err(gone())),
            Role::Replica => None,
        }
    }

    async fn timestamp(
        self: Arc<Fresh>,
        arrived: u64,
        mut lane: Arc<Lane>,
        mut seen: u64,
    ) -> Result<ReadPoint> {
        let began = self.now();
        loop {
            lane.landed.since(seen).await;
            // Its core may have a lane of its own by now; what this one has brought is good all the same.
            let brought = lane.known(arrived);
            lane = self.lane().clone();
            seen = lane.landed.version();
            if let Some(end) = self.follows() {
                return end;
            }
            if let Some(at) = brought.or_else(|| self.ask(&lane, arrived, None)) {
                lane.stats.fetching.fetch_add(self.now() - began, Relaxed);
                return Ok(ReadPoint::At(at));
            }
        }
    }

    async fn fetch_alone(self: Arc<Fresh>) -> Result<ReadPoint> {
        let began = self.now();
        count(&self.own().1.stats.began);
        loop {
            let lane = self.lane().clone();
            let mut seen = lane.landed.version();
            let alone = Alone::ask(lane.clone());
            let landed = loop {
                if let Some(end) = self.follows() {
                    return end;
                }
                if let Some(landed) = alone.take() {
                    break landed;
                }
                seen = lane.landed.since(seen).await;
            };
            if let Ok(at) = landed {
                lane.stats.fetching.fetch_add(self.now() - began, Relaxed);
                return Ok(ReadPoint::At(at));
            }
        }
    }

    fn check(&self, lane: &Lane, at: Position, touches: &[Touch]) -> Check {
        let visible = self.node.marks().published.get();
        let here = self.check_here(at, visible, touches);
        here.unwrap_or_else(|| lane.check(at, visible, touches))
    }

    /// See `Engine::readable`.
    pub fn readable(
        self: &Arc<Fresh>,
        at: Position,
        touches: &[Touched],
        want: &ReadWant,
    ) -> Option<Waiting<()>> {
        let visible = self.node.marks().published.get();
        if at <= visible {
            count(&self.own().1.stats.at_once[Level::Visible as usize]);
            return None;
        }
        let tracked = matches!(
            want.consistency,
            Consistency::Strong | Consistency::Bounded(_)
        ) && want.policy == ReadPolicy::Tracker
            && self.node.role() == Role::Replica;
        if !tracked {
            return Some(Box::pin(self.clone().shown(at, Level::Visible)));
        }
        let touches: Vec<Touch> = touches.iter().map(touch).collect();
        let lane = self.lane();
        let seen = lane.landed.version();
        match self.check(lane, at, &touches) {
            Check::Read(level) => {
                count(&lane.stats.at_once[level as usize]);
                None
            }
            Check::Wait(to, level) => Some(Box::pin(self.clone().shown(to, level))),
            Check::Missing => {
                let lane = lane.clone();
                Some(Box::pin(self.clone().checked(at, touches, lane, seen)))
            }
        }
    }

    /// Waits until this is visible.
    async fn shown(self: Arc<Fresh>, to: Position, level: Level) -> Result<()> {
        let began = self.now();
        self.node.published(Held::Published(to)).await;
        let stats = &self.own().1.stats;
        count(&stats.waits[level as usize]);
        stats.waited.fetch_add(self.now() - began, Relaxed);
        Ok(())
    }

    /// Waits until what is touched can be read at `at`, or all is visible up to there.
    async fn checked(
        self: Arc<Fresh>,
        at: Position,
        touches: Vec<Touch>,
        mut lane: Arc<Lane>,
        mut seen: u64,
    ) -> Result<()> {
        let began = self.now();
        let mut all = self.node.published(Held::Published(at));
        for round in 0u64.. {
            let landing = lane.landed.since(seen).boxed();
            if let Either::Left(_) = select(&mut all, landing).await {
                count(&lane.stats.waits[Level::Visible as usize]);
                lane.stats.waited.fetch_add(self.now() - began, Relaxed);
                return Ok(());
            }
            if round > 1 {
                // The primary has not published `at`: it came back without it. There is no hurry then.
                tokio::time::sleep(AGAIN).await;
            }
            lane = self.lane().clone();
            seen = lane.landed.version();
            match self.check(&lane, at, &touches) {
                Check::Read(level) => {
                    count(&lane.stats.at_once[level as usize]);
                    lane.stats.fetching.fetch_add(self.now() - began, Relaxed);
                    return Ok(());
                }
                Check::Wait(to, level) => {
                    lane.stats.fetching.fetch_add(self.now() - began, Relaxed);
                    return self.clone().shown(to, level).await;
                }
                Check::Missing => {}
            }
        }
        unreachable!("counted without end")
    }

    /// A connection of a core's own, by a task there; not while another begins one, or soon after one that failed.
    fn connect_lane(self: &Arc<Fresh>, n: usize) {
        let (lane, now) = (&self.lanes[n], self.now());
        let again = lane.again.load(Relaxed);
        let may = self.is_connected() && !self.closed.load(SeqCst) && now >= again;
        if !may || lane.mapped.read().is_some() {
            return;
        }
        let took = lane
            .again
            .compare_exchange(again, u64::MAX, Relaxed, Relaxed);
        if let (Ok(_), Some(core)) = (took, cores::current()) {
            let ended = LaneEnded(self.clone(), n);
            core.clone().run(async move {
                let LaneEnded(fresh, n) = &ended;
                _ = fresh.run_lane(&fresh.lanes[*n], &core).await;
            });
        }
    }

    /// Until the connection ends, or this node follows no more.
    async fn run_lane(&self, lane: &Lane, core: &Arc<Core>) -> Result<()> {
        let (primary, name) = (self.primary.clone(), self.name.clone());
        let mut found = primary.found();
        // On the runtime, whose sockets wake its own threads; from then on the socket is the core's.
        let linked = tokio::spawn(async move { link(&primary, &name).await });
        let closed = || Error::internal("the server ends");
        let (link, ..) = linked.await.map_err(|_| closed())??;
        let socket = |tcp: tokio::net::TcpStream| {
            let tcp = mio::net::TcpStream::from_std(tcp.into_std()?);
            Socket::new(tcp, core.clone())
        };
        let mut link = link.over(|line| line.over(socket)).map_err(|e| lost(&e))?;
        let closing = self.closing.notified();
        if self.closed.load(SeqCst) {
            return Ok(());
        }
        tokio::select! {
            e = self.carry(lane, &mut link) => e.map_or(Ok(()), Err),
            () = closing => Ok(()),
            () = found.moved() => Ok(()),
        }
    }

    /// Connections that belong to cores end, and none begin: before the cores do.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
        self.closing.notify_waiters();
    }

    /// Reads the primary's region until this node follows no more, and has it keep snapshots.
    pub async fn run(&self) {
        tokio::join!(self.read_region(), self.run_holds());
    }

    async fn read_region(&self) {
        let mut failures = 0u32;
        let mut silent = false;
        while self.node.role() == Role::Replica {
            let step = Duration::from_millis(20) * (1 << failures.min(6));
            let mut found = self.primary.found();
            let connecting = async {
                if failures > 0 {
                    tokio::time::sleep(step.min(MOST_BACKOFF)).await;
                }
                connect(&self.primary, &self.name).await
            };
            let looking = async {
                while self.node.role() == Role::Replica {
                    tokio::time::sleep(LOOK).await;
                }
            };
            let why = tokio::select! {
                link = connecting => match link {
                    Ok((mut link, mapped)) => {
                        info!(primary = %self.primary, shared_memory = mapped.is_some(), "strong reads can be served");
                        self.map(mapped);
                        silent = false;
                        let began = tokio::time::Instant::now();
                        let carried = tokio::select! {
                            e = self.carry(self.common(), &mut link) => e,
                            () = found.moved() => Some(elsewhere()),
                        };
                        let Some(why) = carried else { break };
                        failures = u32::from(began.elapsed() < MOST_BACKOFF) * (failures + 1);
                        why
                    }
                    Err(e) => {
                        failures += 1;
                        e
                    }
                },
                () = looking => break,
            };
            self.disconnected();
            // Said once, not at every try.
            if !std::mem::replace(&mut silent, true) {
                warn!(primary = %self.primary, "strong reads wait: {}", why.fields().message);
            }
        }
        self.disconnected();
    }

    /// Nothing comes. Whoever waits asks again, so that nothing stays of those who have given up.
    fn disconnected(&self) {
        self.common().connected.store(false, Relaxed);
        self.map(None);
        self.common().lost();
    }

    /// Carries a lane's fetches over this connection. Why it ended; none: this node follows no more.
    async fn carry<S: AsyncRead + AsyncWrite>(
        &self,
        lane: &Lane,
        link: &mut CopyBoth<S>,
    ) -> Option<Error> {
        let memory = Tcp::default();
        tokio::select! {
            // What the one sends goes out in the same step.
            biased;
            () = self.serve(lane, &memory) => None,
            e = memory.drive(link) => Some(e),
        }
    }

    /// Fetches with this memory until the node follows no more.
    async fn serve(&self, lane: &Lane, memory: &dyn RemoteMemory) {
        lane.connected.store(true, Relaxed);
        // What was asked of the connection before will not come: whoever waits asks again.
        lane.lost();
        let mut reads = FuturesUnordered::new();
        let mut look = tokio::time::interval(LOOK);
        let mut looks = 0u32;
        let mut said = None;
        loop {
            tokio::select! {
                () = lane.due.notified() => {
                    // Others of this turn may want to read, too.
                    afterwards().await;
                    for Fetch { number, words } in lane.begin(self.now()) {
                        count(&lane.stats.fetches);
                        reads.push(memory.read(words).map(move |v| (number, v)));
                    }
                }
                Some((number, values)) = reads.next(), if !reads.is_empty() => {
                    // An error: the connection is at its end, and `drive` says why.
                    let Ok(values) = values else { continue };
                    if let Err(why) = self.land(lane, number, &values) {
                        if said.as_ref() != Some(&why) {
                            warn!(primary = %self.primary, ?why, "its answers cannot be used: strong reads wait");
                            said = Some(why);
                        }
                        tokio::time::sleep(AGAIN).await;
                        lane.lost();
                    }
                }
                _ = look.tick() => {
                    if self.node.role() != Role::Replica {
                        return;
                    }
                    looks = looks.wrapping_add(1);
                    if std::ptr::eq(lane, self.common()) {
                        self.ask_ahead(looks);
                    }
                }
            }
        }
    }

    /// Values came.
    fn land(&self, lane: &Lane, number: u64, values: &[u64]) -> std::result::Result<(), Rejected> {
        let followed = self.followed();
        match lane.land(number, values, followed) {
            Ok((at, began)) => {
                self.tell(followed, at);
                let visible = self.node.marks().published.get();
                self.shown.told(followed, at, began, visible);
                Ok(())
            }
            // It was forgotten with a connection.
            Err(Rejected::Unknown) => Ok(()),
            Err(why) => {
                count(&lane.stats.rejected);
                Err(why)
            }
        }
    }
}

fn elsewhere() -> Error {
    Error::new(
        SqlState::CONNECTION_FAILURE,
        "the primary is another node now",
    )
}

fn touch(t: &Touched) -> Touch {
    match t {
        Touched::Catalog => Touch::Catalog,
        Touched::Table(t) => Touch::Table(*t),
        Touched::Row(t, key) => Touch::Row(*t, row_hash(*t, key)),
        Touched::All => Touch::All,
    }
}

#[cfg(test)]
mod tests;
