//! Strong reads at a replica: what sessions ask and wait for, and the tasks that read the primary's region for all of them.
//!
//! ```text
//! session ──▶ read_point ──▶ Lane::ask ──▶ known: at once
//!                               │   └──▶ a future: woken when a fetch lands
//!                               ▼
//!                    the lane's task ──▶ RemoteMemory ──▶ landed ──▶ wakes all
//! session ──▶ readable ──▶ Lane::check ──▶ now | slots are fetched | what is read becomes visible
//! ```
//! `node::reading` decides where a read stands and when it may read; here its steps are taken, and what it waits for is waited for. While the
//! primary cannot be asked, strong reads wait; nothing stale is served, and the session gives up when its `canon.read_timeout` says so.
//!
//! Where the primary's words are mapped (`shared`), every read looks for itself: a few loads, in place. The slots of what it reads are
//! looked at only when more is published than this node shows.
//!
//! A timestamp that lands is also what the primary has published: replay is told, so that it shows what it has without waiting for
//! the next tick. And it says as of when that is the newest there was, which is all that a read asks that may be so old
//! (`replica::read::Shown`).

use super::Primary;
use super::copy_both::{CopyBoth, lost};
use super::holds::RemoteSnapshots;
pub use super::lane::FreshStats;
use super::lane::Lane;
use super::remote::{Tcp, connect, link};
use super::shared::Mapped;
use crate::connections::cores::{self, Core};
use crate::connections::socket::Socket;
use base::region::{CLUSTER_WORDS, PUBLISHED_WORD, TERM_WORD, UNTIL_WORD, row_hash};
use base::{CommitWait, Error, Position, Result, SqlState};
use env::Env;
use env::turns::afterwards;
use futures::FutureExt;
use futures::future::{Either, select};
use futures::stream::{FuturesUnordered, StreamExt};
use node::reading::{Checking, May, Place, Placing};
use node::{Following, Node, Role};
use replica::read::{Check, Fetch, Level, Rejected, RemoteMemory, Shown, Touch, decide};
use sql::reading::{ReadPoint, ReadWant, Reads, Touch as Touched, Waiting};
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

fn word(words: &[AtomicU64], w: u32) -> Position {
    Position::from_u64(words[w as usize].load(SeqCst))
}

fn count(a: &AtomicU64) {
    a.fetch_add(1, Relaxed);
}

/// See the head of the file.
pub struct StrongReads {
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
    pub(super) holds: Arc<RemoteSnapshots>,
}

pub(super) fn gone() -> Error {
    Error::new(
        SqlState::CANNOT_CONNECT_NOW,
        "this node has handed over and cannot know what its successor has committed",
    )
    .hint("Connect to the new primary, or SET canon.read_consistency = 'eventual'.")
}

/// A read at a node that has no primary to ask: it leads, or has led.
pub fn placed_here(node: &Arc<Node>, want: &ReadWant) -> ReadPoint {
    match Placing::new(*want).begin(&node.view(), &Shown::default(), || None) {
        Place::Leads(_) => ReadPoint::Wait(Box::pin(placed_later(node.clone(), *want))),
        Place::HandedOver => ReadPoint::Wait(Box::pin(async { Err(gone()) })),
        Place::At(at) => ReadPoint::At(at),
        Place::Newest | Place::Fetch { .. } => ReadPoint::Newest,
    }
}

/// The same once the node leads.
async fn placed_later(node: Arc<Node>, want: ReadWant) -> Result<ReadPoint> {
    match Placing::new(want).begin(&node.view(), &Shown::default(), || None) {
        Place::Leads(at) => node.published(CommitWait::Published(at)).await,
        Place::HandedOver => return Err(gone()),
        Place::Newest | Place::At(_) | Place::Fetch { .. } => {}
    }
    Ok(ReadPoint::Newest)
}

/// The connection of this core's lane ends with it, however it does.
struct LaneEnded(Arc<StrongReads>, usize);

impl Drop for LaneEnded {
    fn drop(&mut self) {
        let (strong_reads, lane) = (&self.0, &self.0.lanes[self.1]);
        lane.connected.store(false, Relaxed);
        lane.lost();
        let soon = strong_reads.now() + MOST_BACKOFF.as_nanos() as u64;
        lane.again.store(soon, Relaxed);
    }
}

impl StrongReads {
    pub fn new(primary: Primary, name: String, node: Arc<Node>, env: Env) -> StrongReads {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cores = cores.min(LANES);
        let lane = |_| Arc::new(Lane::new(node.cluster()));
        let (following, cluster) = (node.following(), node.cluster());
        StrongReads {
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
            holds: Arc::new(RemoteSnapshots::new(cluster)),
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
    fn lane(self: &Arc<StrongReads>) -> &Arc<Lane> {
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

    /// See `Engine::read_point`.
    pub fn read_point(self: &Arc<StrongReads>, want: &ReadWant, reads: &Reads<'_>) -> ReadPoint {
        let placing = Placing::new(*want);
        let mut leased = false;
        let lease = || self.leased().inspect(|_| leased = true);
        match placing.begin(&self.node.view(), &self.shown, lease) {
            Place::Fetch { .. } => {}
            Place::Newest => return ReadPoint::Newest,
            Place::At(at) => {
                if leased {
                    count(&self.own().1.stats.leased);
                }
                return ReadPoint::At(at);
            }
            Place::Leads(_) | Place::HandedOver => return placed_here(&self.node, want),
        }
        // A look for a read that may be old tells as of now; it serves every read that arrived before.
        let since = want.since().unwrap_or(want.arrived);
        let began = match since < want.arrived {
            true => self.now(),
            false => since,
        };
        if let Some(at) = self.published_here(began) {
            count(&self.own().1.stats.looked);
            return ReadPoint::At(at);
        }
        self.fetched(placing, want, reads)
    }

    /// All that has come, if a read lease says now that this is all that was acknowledged.
    fn leased(&self) -> Option<Position> {
        self.following.as_ref()?.leased(&*self.env.clock)
    }

    /// Whether a read lease is held now.
    pub fn holds_lease(&self) -> bool {
        self.node.role() == Role::Replica && self.leased().is_some()
    }

    /// A timestamp of a fetch that has landed, or a wait for one.
    fn fetched(
        self: &Arc<StrongReads>,
        placing: Placing,
        want: &ReadWant,
        reads: &Reads<'_>,
    ) -> ReadPoint {
        let lane = self.lane().clone();
        let seen = lane.landed.version();
        let mut placed = Placed {
            strong_reads: self.clone(),
            placing,
            lane,
        };
        let touches = || reads().iter().map(touch).collect();
        let place = placed.step(None, touches);
        let stats = &placed.lane.stats;
        match place {
            Place::At(at) => {
                count(&stats.reused);
                ReadPoint::At(at)
            }
            Place::Fetch { first } => {
                count(if first { &stats.began } else { &stats.joined });
                ReadPoint::Wait(Box::pin(placed.wait(seen, *want)))
            }
            Place::Newest => ReadPoint::Newest,
            // A node that is promoted wakes, once, all that waits. A read that comes later finds that it follows no more.
            Place::Leads(_) | Place::HandedOver => placed_here(&self.node, want),
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
        if self.shown.is_due(now, looks) {
            self.common().ask_ahead(now);
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

    /// What `f` reads of mapped words counts if their node is the primary of this term, before and afterwards, and holds its lease afterwards.
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
        let until = words[UNTIL_WORD as usize].load(SeqCst);
        let leads = until == 0 || self.env.clock.boot_nanos() < until;
        (leads && same() && mapped.is_alive()).then_some(found)
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

    /// A step of a read that stands at a position.
    fn check(&self, lane: &Lane, checking: &mut Checking) -> May {
        let view = self.node.view();
        let (at, visible, touches) = (checking.at(), view.visible, checking.touches());
        let here = match view.role {
            Role::Replica => checking
                .is_by_lease()
                .then(|| {
                    self.following
                        .as_ref()?
                        .check_received(at, visible, touches)
                })
                .flatten()
                .or_else(|| self.check_here(at, visible, touches)),
            _ => None,
        };
        lane.check(checking, &view, here)
    }

    /// See `Engine::readable`.
    pub fn readable(
        self: &Arc<StrongReads>,
        at: Position,
        touches: &[Touched],
        want: &ReadWant,
    ) -> Option<Waiting<()>> {
        let touches = || touches.iter().map(touch).collect();
        if at <= self.node.marks().published.get() {
            count(&self.own().1.stats.at_once[Level::Visible as usize]);
            return None;
        }
        let mut checking = Checking::new(want, at, touches);
        let lane = self.lane();
        let seen = lane.landed.version();
        match self.check(lane, &mut checking) {
            May::Read(level) => {
                count(&lane.stats.at_once[level as usize]);
                None
            }
            May::Wait(to, level) => Some(Box::pin(self.clone().shown(to, level))),
            May::Fetch { .. } => {
                let lane = lane.clone();
                Some(Box::pin(self.clone().checked(checking, lane, seen)))
            }
        }
    }

    /// Waits until this is visible.
    async fn shown(self: Arc<StrongReads>, to: Position, level: Level) -> Result<()> {
        let began = self.now();
        self.node.published(CommitWait::Published(to)).await;
        let stats = &self.own().1.stats;
        count(&stats.waits[level as usize]);
        stats.waited.fetch_add(self.now() - began, Relaxed);
        Ok(())
    }

    /// Waits until what is touched can be read where the read stands, or all is visible up to there.
    async fn checked(
        self: Arc<StrongReads>,
        mut checking: Checking,
        mut lane: Arc<Lane>,
        mut seen: u64,
    ) -> Result<()> {
        let began = self.now();
        let mut all = self.node.published(CommitWait::Published(checking.at()));
        let mut pause = false;
        loop {
            let landing = lane.landed.since(seen).boxed();
            if let Either::Left(_) = select(&mut all, landing).await {
                count(&lane.stats.waits[Level::Visible as usize]);
                lane.stats.waited.fetch_add(self.now() - began, Relaxed);
                return Ok(());
            }
            if pause {
                // The primary has not published `at`: it came back without it.
                tokio::time::sleep(AGAIN).await;
            }
            lane = self.lane().clone();
            seen = lane.landed.version();
            let may = self.check(&lane, &mut checking);
            let May::Fetch { idle } = may else {
                lane.stats.fetching.fetch_add(self.now() - began, Relaxed);
                let May::Wait(to, level) = may else {
                    if let May::Read(level) = may {
                        count(&lane.stats.at_once[level as usize]);
                    }
                    return Ok(());
                };
                return self.clone().shown(to, level).await;
            };
            pause = idle;
        }
    }

    /// A connection of a core's own, by a task there; not while another begins one, or soon after one that failed.
    fn connect_lane(self: &Arc<StrongReads>, n: usize) {
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
                let LaneEnded(strong_reads, n) = &ended;
                _ = strong_reads.run_lane(&strong_reads.lanes[*n], &core).await;
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

/// A read that waits for its timestamp: at the connection that it uses. Dropped, it has given up.
struct Placed {
    strong_reads: Arc<StrongReads>,
    placing: Placing,
    lane: Arc<Lane>,
}

impl Placed {
    fn step(&mut self, brought: Option<Position>, touches: impl FnOnce() -> Vec<Touch>) -> Place {
        let view = self.strong_reads.node.view();
        self.lane.ask(&mut self.placing, &view, brought, touches)
    }

    async fn wait(mut self, mut seen: u64, want: ReadWant) -> Result<ReadPoint> {
        let began = self.strong_reads.now();
        loop {
            self.lane.landed.since(seen).await;
            let brought = self.lane.known(&self.placing);
            // Its core may have a connection of its own by now; what this one has brought is good all the same.
            if !self.placing.is_alone() || !self.lane.is_connected() {
                self.move_to(self.strong_reads.lane().clone());
            }
            seen = self.lane.landed.version();
            match self.step(brought, Vec::new) {
                Place::At(at) => {
                    let waited = self.strong_reads.now() - began;
                    self.lane.stats.fetching.fetch_add(waited, Relaxed);
                    return Ok(ReadPoint::At(at));
                }
                Place::Fetch { .. } => {}
                Place::Newest => return Ok(ReadPoint::Newest),
                Place::HandedOver => return Err(gone()),
                Place::Leads(_) => {
                    let node = self.strong_reads.node.clone();
                    return placed_later(node, want).await;
                }
            }
        }
    }

    fn move_to(&mut self, lane: Arc<Lane>) {
        if !Arc::ptr_eq(&lane, &self.lane) {
            self.lane.give_up(&mut self.placing);
            self.lane = lane;
        }
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        self.lane.give_up(&mut self.placing);
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
