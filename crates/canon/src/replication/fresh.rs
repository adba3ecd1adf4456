//! Strong reads at a replica: the waits of sessions, and the one task that reads the primary's region for all of them.
//!
//! ```text
//! session ──▶ read_point ──▶ Timestamps ──▶ known: at once
//!                                 │   └──▶ a future: woken when a fetch lands
//!                                 ▼
//!                     this node's task ──▶ RemoteMemory ──▶ landed ──▶ wakes all
//! session ──▶ readable ──▶ Timestamps::check ──▶ now | slots are fetched | what is read becomes visible
//! ```
//! What is decided is decided in `replica::read`. While the primary cannot be asked, strong reads wait; nothing stale is served, and the
//! session gives up when its `canon.read_timeout` says so.
//!
//! Where the primary's words are mapped (`shared`), every read looks for itself: a few loads and a question to the kernel, in place.
//!
//! A timestamp that lands is also what the primary has published: replay is told, so that it shows what it has without waiting for
//! the next tick.

use super::Primary;
use super::remote::{Tcp, connect};
use super::shared::Mapped;
use base::region::{CLUSTER_WORDS, PUBLISHED_WORD, TERM_WORD, row_hash};
use base::{Error, Held, Position, Result, SqlState};
use env::Env;
use futures::FutureExt;
use futures::future::{Either, select};
use futures::stream::{FuturesUnordered, StreamExt};
use node::{Node, Notice, Role};
use parking_lot::{Mutex, RwLock};
use replica::read::{Ask, Check, Fetch, Level, Rejected, RemoteMemory, Timestamps, Touch, decide};
use sql::reading::{Consistency, ReadPoint, ReadPolicy, ReadWant, Touch as Reads, Waiting};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::mpsc;
use tracing::{info, warn};

/// Longest pause between tries to connect.
const MOST_BACKOFF: Duration = Duration::from_secs(1);
/// Before the primary is asked again whose answer could not be used.
const AGAIN: Duration = Duration::from_millis(10);
/// How often it is looked whether this node follows still.
const LOOK: Duration = Duration::from_millis(100);

/// What was done for strong reads.
#[derive(Debug, Default)]
pub struct FreshStats {
    /// Fetches from the primary, those for slots included.
    pub fetches: AtomicU64,
    /// Answers that were rejected.
    pub rejected: AtomicU64,
    /// Reads that took a timestamp that was there, joined a fetch in flight (or the next), or began one.
    pub reused: AtomicU64,
    pub joined: AtomicU64,
    pub began: AtomicU64,
    /// Reads that could go on at once, and why: everything was visible, or nothing had changed globally, in the schema, the tables, the
    /// rows.
    pub at_once: [AtomicU64; 5],
    /// Reads that waited, for what, and how long, in nanoseconds.
    pub waits: [AtomicU64; 5],
    pub waited: AtomicU64,
    /// Nanoseconds that reads waited for timestamps and slots.
    pub fetching: AtomicU64,
}

fn word(words: &[AtomicU64], w: u32) -> Position {
    Position::from_u64(words[w as usize].load(SeqCst))
}

fn count(a: &AtomicU64) {
    a.fetch_add(1, Relaxed);
}

/// See the head of the file.
pub struct Fresh {
    primary: Primary,
    name: String,
    node: Arc<Node>,
    env: Env,
    state: Mutex<Timestamps>,
    /// A fetch landed, or nothing that was in flight will.
    landed: Notice,
    fetches: mpsc::UnboundedSender<Fetch>,
    incoming: Mutex<Option<mpsc::UnboundedReceiver<Fetch>>>,
    connected: AtomicBool,
    /// The primary's words, where this host has them.
    mapped: RwLock<Option<Arc<Mapped>>>,
    pub stats: FreshStats,
}

fn gone() -> Error {
    Error::new(
        SqlState::CANNOT_CONNECT_NOW,
        "this node has handed over and cannot know what its successor has committed",
    )
    .hint("Connect to the new primary, or SET canon.read_consistency = 'eventual'.")
}

/// What reads get at a node that was started as a primary.
pub fn handed_over(node: &Node, want: &ReadWant) -> ReadPoint {
    let strong = !matches!(
        want.consistency,
        Consistency::Session | Consistency::Eventual
    );
    match strong && node.role() == Role::Sealed {
        true => ReadPoint::Wait(Box::pin(async { Err(gone()) })),
        false => ReadPoint::Newest,
    }
}

impl Fresh {
    pub fn new(primary: Primary, name: String, node: Arc<Node>, env: Env) -> Fresh {
        let (fetches, incoming) = mpsc::unbounded_channel();
        Fresh {
            state: Mutex::new(Timestamps::new(node.cluster())),
            primary,
            name,
            node,
            env,
            landed: Notice::default(),
            fetches,
            incoming: Mutex::new(Some(incoming)),
            connected: AtomicBool::new(false),
            mapped: RwLock::default(),
            stats: FreshStats::default(),
        }
    }

    /// Whether the primary can be asked.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Relaxed)
    }

    /// Nanoseconds of the clock that fetches are stamped with.
    pub fn now(&self) -> u64 {
        self.env.clock.monotonic_nanos()
    }

    fn send(&self, fetch: Fetch) {
        count(&self.stats.fetches);
        // The task ends when the node follows no more; then nobody waits for long.
        _ = self.fetches.send(fetch);
    }

    /// A timestamp if there is one, or a way to it. `first`: this read asks for the first time.
    fn ask(&self, arrived: u64, first: bool) -> Option<Position> {
        let now = self.now();
        let asked = self.state.lock().ask(arrived, now);
        let (counter, at) = match asked {
            Ask::Known(at) => (&self.stats.reused, Some(at)),
            Ask::Joined | Ask::Queued => (&self.stats.joined, None),
            Ask::Begin(fetch) => {
                self.send(fetch);
                (&self.stats.began, None)
            }
        };
        if first {
            count(counter);
        }
        at
    }

    /// See `Engine::read_point`.
    pub fn read_point(self: &Arc<Fresh>, want: &ReadWant) -> ReadPoint {
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
        if let Some(at) = self.published_here() {
            return ReadPoint::At(at);
        }
        match want.policy {
            ReadPolicy::Stale | ReadPolicy::CommitWait => ReadPoint::Newest,
            ReadPolicy::ReadWait => ReadPoint::Wait(Box::pin(self.clone().fetch_alone())),
            ReadPolicy::Tracker | ReadPolicy::Lamport => {
                let seen = self.landed.version();
                match self.ask(arrived, true) {
                    Some(at) => ReadPoint::At(at),
                    None => ReadPoint::Wait(Box::pin(self.clone().timestamp(arrived, seen))),
                }
            }
        }
    }

    /// *Published* of the primary, where its words are mapped: a fetch that takes no waiting.
    fn published_here(&self) -> Option<Position> {
        let mapped = self.mapped.read();
        let mapped = mapped.as_deref()?;
        // Before the words are: of a newer term this claims nothing.
        let term = self.node.term();
        let at = self.look(mapped, |w| word(w, PUBLISHED_WORD))?;
        count(&self.stats.fetches);
        count(&self.stats.began);
        if at > self.node.marks().published.get()
            && let Some(f) = self.node.following()
        {
            f.published(term, at);
        }
        Some(at)
    }

    /// What `f` reads of mapped words counts if their node is the primary that this one follows, before and afterwards.
    fn look<T>(&self, mapped: &Mapped, f: impl FnOnce(&[AtomicU64]) -> T) -> Option<T> {
        let words = mapped.words();
        let followed = self.node.term();
        let [high, low] = CLUSTER_WORDS.map(|w| words[w as usize].load(SeqCst));
        let same = || words[TERM_WORD as usize].load(SeqCst) == followed;
        let ours = u128::from(high) << 64 | u128::from(low) == self.node.cluster();
        let found = (ours && same()).then(|| f(words))?;
        (same() && mapped.is_alive()).then_some(found)
    }

    /// The check against mapped words; none: they do not help.
    fn check_here(&self, at: Position, visible: Position, touches: &[Touch]) -> Option<Check> {
        let mapped = self.mapped.read();
        let mapped = mapped.as_deref()?;
        self.look(mapped, |w| {
            // Slots are looked at when `at` has been published.
            let published = word(w, PUBLISHED_WORD) >= at;
            published.then(|| decide(at, visible, touches, |s| Some(word(w, s))).ok())?
        })?
    }

    async fn timestamp(self: Arc<Fresh>, arrived: u64, mut seen: u64) -> Result<ReadPoint> {
        let began = self.now();
        loop {
            self.landed.since(seen).await;
            match self.node.role() {
                Role::Primary => return Ok(ReadPoint::Newest),
                Role::Sealed => return Err(gone()),
                Role::Replica => {}
            }
            seen = self.landed.version();
            if let Some(at) = self.ask(arrived, false) {
                self.stats.fetching.fetch_add(self.now() - began, Relaxed);
                return Ok(ReadPoint::At(at));
            }
        }
    }

    async fn fetch_alone(self: Arc<Fresh>) -> Result<ReadPoint> {
        let began = self.now();
        count(&self.stats.began);
        loop {
            let fetch = self.state.lock().fetch_alone(self.now());
            let number = fetch.number;
            let mut seen = self.landed.version();
            self.send(fetch);
            let landed = loop {
                seen = self.landed.since(seen).await;
                match self.node.role() {
                    Role::Primary => return Ok(ReadPoint::Newest),
                    Role::Sealed => return Err(gone()),
                    Role::Replica => {}
                }
                if let Some(landed) = self.state.lock().take_alone(number) {
                    break landed;
                }
            };
            if let Ok(at) = landed {
                self.stats.fetching.fetch_add(self.now() - began, Relaxed);
                return Ok(ReadPoint::At(at));
            }
        }
    }

    fn check(&self, at: Position, touches: &[Touch]) -> Check {
        let visible = self.node.marks().published.get();
        if let Some(check) = self.check_here(at, visible, touches) {
            return check;
        }
        let now = self.now();
        let mut check = self.state.lock().check(at, visible, touches, now);
        if let Check::Missing(fetch) = &mut check
            && let Some(fetch) = fetch.take()
        {
            self.send(fetch);
        }
        check
    }

    /// See `Engine::readable`.
    pub fn readable(
        self: &Arc<Fresh>,
        at: Position,
        touches: &[Reads],
        want: &ReadWant,
    ) -> Option<Waiting<()>> {
        let visible = self.node.marks().published.get();
        if at <= visible {
            count(&self.stats.at_once[Level::Visible as usize]);
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
        let seen = self.landed.version();
        match self.check(at, &touches) {
            Check::Read(level) => {
                count(&self.stats.at_once[level as usize]);
                None
            }
            Check::Wait(to, level) => Some(Box::pin(self.clone().shown(to, level))),
            Check::Missing(_) => Some(Box::pin(self.clone().checked(at, touches, seen))),
        }
    }

    /// Waits until this is visible.
    async fn shown(self: Arc<Fresh>, to: Position, level: Level) -> Result<()> {
        let began = self.now();
        self.node.published(Held::Published(to)).await;
        count(&self.stats.waits[level as usize]);
        self.stats.waited.fetch_add(self.now() - began, Relaxed);
        Ok(())
    }

    /// Waits until what is touched can be read at `at`, or all is visible up to there.
    async fn checked(
        self: Arc<Fresh>,
        at: Position,
        touches: Vec<Touch>,
        mut seen: u64,
    ) -> Result<()> {
        let began = self.now();
        let mut all = self.node.published(Held::Published(at));
        for round in 0u64.. {
            let landing = self.landed.since(seen).boxed();
            if let Either::Left(_) = select(&mut all, landing).await {
                count(&self.stats.waits[Level::Visible as usize]);
                self.stats.waited.fetch_add(self.now() - began, Relaxed);
                return Ok(());
            }
            if round > 1 {
                // The primary has not published `at`: it came back without it. There is no hurry then.
                tokio::time::sleep(AGAIN).await;
            }
            seen = self.landed.version();
            match self.check(at, &touches) {
                Check::Read(level) => {
                    count(&self.stats.at_once[level as usize]);
                    self.stats.fetching.fetch_add(self.now() - began, Relaxed);
                    return Ok(());
                }
                Check::Wait(to, level) => {
                    self.stats.fetching.fetch_add(self.now() - began, Relaxed);
                    return self.clone().shown(to, level).await;
                }
                Check::Missing(_) => {}
            }
        }
        unreachable!("counted without end")
    }

    /// Reads the primary's region until this node follows no more.
    pub async fn run(&self) {
        let Some(mut incoming) = self.incoming.lock().take() else {
            return;
        };
        let mut failures = 0u32;
        let mut silent = false;
        while self.node.role() == Role::Replica {
            let step = Duration::from_millis(20) * (1 << failures.min(6));
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
                        *self.mapped.write() = mapped.map(Arc::new);
                        silent = false;
                        let began = tokio::time::Instant::now();
                        let memory = Tcp::default();
                        let why = tokio::select! {
                            e = memory.drive(&mut link) => e,
                            () = self.serve(&memory, &mut incoming) => break,
                        };
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
            self.connected.store(false, Relaxed);
            *self.mapped.write() = None;
            // Said once, not at every try.
            if !std::mem::replace(&mut silent, true) {
                warn!(primary = %self.primary, "strong reads wait: {}", why.fields().message);
            }
        }
        self.connected.store(false, Relaxed);
        *self.mapped.write() = None;
        self.forget();
    }

    /// Nothing that is in flight lands.
    fn forget(&self) {
        self.state.lock().lost();
        self.landed.moved();
    }

    /// Fetches with this memory until the node follows no more.
    async fn serve(&self, memory: &dyn RemoteMemory, incoming: &mut Incoming) {
        // What was asked of the connection before will not come: whoever waits asks again.
        while incoming.try_recv().is_ok() {}
        self.connected.store(true, Relaxed);
        self.forget();
        let mut reads = FuturesUnordered::new();
        let mut look = tokio::time::interval(LOOK);
        let mut said = None;
        loop {
            tokio::select! {
                fetch = incoming.recv() => {
                    let Some(Fetch { number, words }) = fetch else { return };
                    reads.push(memory.read(words).map(move |v| (number, v)));
                }
                Some((number, values)) = reads.next(), if !reads.is_empty() => {
                    // An error: the connection is at its end, and `drive` says why.
                    let Ok(values) = values else { continue };
                    if let Err(why) = self.land(number, &values) {
                        if said.as_ref() != Some(&why) {
                            warn!(primary = %self.primary, ?why, "its answers cannot be used: strong reads wait");
                            said = Some(why);
                        }
                        tokio::time::sleep(AGAIN).await;
                        self.forget();
                    }
                }
                _ = look.tick() => if self.node.role() != Role::Replica {
                    return;
                },
            }
        }
    }

    /// Values came.
    fn land(&self, number: u64, values: &[u64]) -> std::result::Result<(), Rejected> {
        let (followed, now) = (self.node.term(), self.now());
        let (took, next) = self.state.lock().landed(number, values, followed, now);
        if let Some(fetch) = next {
            self.send(fetch);
        }
        match took {
            Ok(at) => {
                if let Some(f) = self.node.following() {
                    f.published(followed, at);
                }
                self.landed.moved();
                Ok(())
            }
            // It was forgotten with a connection.
            Err(Rejected::Unknown) => Ok(()),
            Err(why) => {
                count(&self.stats.rejected);
                Err(why)
            }
        }
    }
}

type Incoming = mpsc::UnboundedReceiver<Fetch>;

fn touch(t: &Reads) -> Touch {
    match t {
        Reads::Catalog => Touch::Catalog,
        Reads::Table(t) => Touch::Table(*t),
        Reads::Row(t, key) => Touch::Row(*t, row_hash(*t, key)),
        Reads::All => Touch::All,
    }
}
