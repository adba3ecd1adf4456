//! A node from start to stop: the data directory, recovery, the flusher, the housekeeper, the checkpointer.
//!
//! Threads of a node: *flusher* (see `pipeline`) at a primary; *follower*, *own log* (see `following`) and those of replay at a replica. The threads of
//! its house (`house`) do what goes on beside that.

use base::region::Region;
use base::schema::{Change, Relation, Schema, SequenceDef, encode_changes};
use base::{
    CommitWait, Committing, Drawn, Error, Oid, Position, Result, SqlState, Watermarks, Work,
};
use commit::PublishedWait;
use env::{JoinHandle, fault};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::Store;
use txn::{
    Catalog, CommitOrder, Durability, RuleCompiler, Txn, TxnManager, TxnOptions, replay_changes,
};
use wal::{DataDir, LogReader, LogWriter, Progress};

/// How often who waits on a thread looks whether he still may.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

use crate::certifier::Certifier;
use crate::errors::{failed, stopping};
use crate::following::{Following, Tracker};
use crate::house::House;
use crate::notice::Notice;
use crate::options::{NodeOptions, RecoveryReport};
use crate::outcomes::{Outcome, Outcomes};
use crate::pipeline::{FlushStats, Marked, Pipeline, Quiet};
use crate::promote::Role;
use crate::ranges::{Numbers, Ranges};
use crate::reach;
use crate::recovery::Recovery;
use crate::replaying::Replaying;
use crate::sequences::{Sequences, log};
use crate::shipping::Shipping;
use crate::sink::Sink;
use crate::topology::{self, Local, Rule, Topology};
use replica::ReplicaMarks;
use replica::replay::{Replay, Stepper};

pub(crate) struct Shared {
    pub(crate) dir: DataDir,
    pub(crate) manager: Arc<TxnManager>,
    pub(crate) pipeline: Pipeline,
    pub(crate) sequences: Arc<Sequences>,
    pub(crate) ranges: Arc<Ranges>,
    pub(crate) outcomes: Arc<Outcomes>,
    pub(crate) options: NodeOptions,
    /// A [`Role`].
    pub(crate) role: AtomicU8,
    pub(crate) term: AtomicU64,
    /// When it was opened, by the clock that counts leases.
    pub(crate) opened: u64,
    pub(crate) changing_role: Mutex<()>,
    pub(crate) following: Mutex<Option<Arc<Following>>>,
    /// The threads of a replica, and the log that they give back; without threads the log is there all the while.
    pub(crate) follower: Mutex<Option<(Vec<JoinHandle>, Arc<Mutex<Option<LogWriter>>>)>>,
    pub(crate) stopping: AtomicBool,
    pub(crate) checkpoint: (Mutex<CheckpointState>, Condvar),
    pub(crate) checkpoints: AtomicU64,
    /// How often a split value got more records, and fewer.
    pub(crate) split_steps: crate::splits::steps::Steps,
    /// Old versions taken away since the start, and records that still have some.
    pub(crate) reclaimed: (AtomicU64, AtomicU64),
    /// There is a primary of a newer term, or of one that nobody leads any more.
    pub(crate) deposed: AtomicBool,
    /// Nothing is served, whatever is published; and when that ends.
    pub(crate) held: AtomicBool,
    pub(crate) let_go: Notice,
    /// The way to the primary's certification, of a site.
    pub(crate) certifier: OnceLock<Arc<dyn Certifier>>,
    pub(crate) ticks: Mutex<Ticks>,
}

/// When epochs ticked: nanoseconds.
#[derive(Default)]
pub(crate) struct Ticks {
    pub(crate) last: u64,
    pub(crate) epoch: u64,
}

#[derive(Default)]
pub(crate) struct CheckpointState {
    pub(crate) wanted: u64,
    pub(crate) done: u64,
    pub(crate) last_error: Option<Error>,
}

/// Settings that a new database is made with. One of an older build has none stored, and keeps the defaults of the program.
const MADE_WITH: [(&str, &str); 1] = [("default_transaction_isolation", "read committed")];

/// A running node. Dropping it stops it cleanly.
pub struct Node {
    shared: Arc<Shared>,
    flusher: Mutex<Option<JoinHandle>>,
    /// What keeps house for it, and its number there.
    house: Mutex<Option<(Arc<House>, u64)>>,
    report: RecoveryReport,
    path: PathBuf,
}

impl Node {
    /// Opens a data directory, making it if it is absent, and recovers what is in it.
    pub fn open(path: &Path, options: NodeOptions) -> Result<Node> {
        let env = options.env.clone();
        let (began, boot) = (env.clock.monotonic_nanos(), env.clock.boot_nanos());
        let dir = DataDir::open(&env, path, options.directory()).map_err(failed)?;
        let workers = options.crew();
        let store = Arc::new(Store::default());
        let sequences = Arc::new(Sequences::default());
        let recovery = Recovery::new(store.clone(), sequences.clone(), workers);
        let outcomes = recovery.outcomes.clone();
        let progress = Progress::default();
        let found = reach::found(&dir)?;
        // What was gathered last is applied, and indexes are built, after all has been read: that may take the longest.
        let recovered = with_progress(&options, &progress, || {
            let recovered = wal::recover(&dir, &recovery, workers, &progress).map_err(failed)?;
            let catalog = recovery.finish(recovered.last)?;
            Ok::<_, Error>((recovered, catalog))
        });
        let (mut recovered, mut catalog) = recovered?;
        let asked = reach::Asked {
            env: &env,
            replica: options.replica,
            accept: options.accept_log_end,
        };
        let accepted = reach::whole(&dir, &found, &mut recovered, asked)?;
        let created = catalog.schema.version == 0;
        if created && options.replica {
            let what = "there is no database to follow with in this directory";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what));
        }
        let bootstrap = Schema::made(&options.owner, &MADE_WITH).dump();
        if created {
            catalog = replay_changes(&store, &catalog, &bootstrap)?;
        }
        options.limit(&store.memory);
        // Recovery keeps no older versions, so nothing is shown before all of it may be (`Node::is_open`).
        let marks = Arc::new(match options.replica {
            true => Watermarks::unheard(recovered.last),
            false => Watermarks::recovered(recovered.last),
        });
        let term =
            (dir.terms().last()).map_or(recovered.end.term.max(1), |t| recovered.end.term.max(t.0));
        // A replica knows of terms that its log has not reached: groups of older ones come first.
        let least = if options.replica { 1 } else { term };
        let log_term = recovered.end.term.max(least);
        let writer =
            LogWriter::resume(dir.log().clone(), &recovered.end, log_term).map_err(failed)?;
        let goes_on = reach::begin(&dir, &recovered, term, options.replica)?;
        let manager = TxnManager::new(store, marks.clone(), catalog);
        let report = RecoveryReport {
            created,
            checkpoint_rows: recovered.checkpoint.map_or(0, |c| c.rows),
            commits: recovered.commits,
            last: recovered.last,
            duration: Duration::from_nanos(env.clock.monotonic_nanos() - began),
            cut: recovered.cut.map(|c| c.to_string()),
            accepted: accepted.map(|what| what.to_string()),
        };
        let shared = Arc::new(Shared {
            dir,
            manager,
            pipeline: Pipeline::new(goes_on, marks, &options),
            sequences,
            ranges: Arc::default(),
            outcomes,
            role: AtomicU8::new(match options.replica {
                false => Role::Primary,
                true => Role::Replica,
            } as u8),
            term: AtomicU64::new(term),
            opened: boot,
            changing_role: Mutex::default(),
            following: Mutex::default(),
            follower: Mutex::default(),
            options,
            stopping: AtomicBool::new(false),
            checkpoint: Default::default(),
            checkpoints: AtomicU64::new(0),
            split_steps: Default::default(),
            reclaimed: Default::default(),
            deposed: AtomicBool::new(false),
            held: AtomicBool::new(false),
            let_go: Notice::default(),
            certifier: OnceLock::new(),
            ticks: Mutex::default(),
        });
        let node = Node {
            shared,
            flusher: Mutex::default(),
            house: Mutex::default(),
            report,
            path: path.to_owned(),
        };
        node.start(writer)?;
        if created {
            node.log_bootstrap(&bootstrap)?;
        }
        // Not before: a checkpoint of rows that no log has would make half a database of a directory that has none.
        node.move_in()?;
        Ok(node)
    }

    /// The first commit of a database is its schema.
    fn log_bootstrap(&self, changes: &[Change]) -> Result<()> {
        let mut b = base::record::CommitBuilder::new();
        b.push(
            base::record::RecordKind::Schema,
            0,
            &[],
            &encode_changes(changes),
        );
        let p = &self.shared.pipeline;
        let (position, ticket) = p.begin()?;
        let (heads, data) = b.finish(position, 0);
        p.ready(ticket, heads, data);
        // Its own disk is enough for the schema, whatever the policy: no replica can be there yet.
        p.shipping.acknowledge_early(position, false);
        while !self.is_published(CommitWait::Flushed(position)) {
            // Without room for it there is no database.
            self.shared.manager.check_accepts_writes()?;
            self.flush_here(true);
            self.shared
                .options
                .env
                .clock
                .sleep(Duration::from_millis(1));
        }
        p.marks.decide(position);
        Ok(())
    }

    fn start(&self, writer: LogWriter) -> Result<()> {
        match self.role() {
            Role::Replica => self.start_following(writer)?,
            _ => {
                let (s, last) = (&self.shared, self.report.last);
                let published = || self.marks().published.get();
                self.before_leading(false)?;
                let region = &s.pipeline.region;
                region.lead(s.dir.cluster(), self.term(), last, published);
                s.dir.lead().map_err(failed)?;
                self.start_flusher(writer)?;
                // Where no replica is asked for, this disk is enough.
                self.shared.pipeline.shipping.settle();
            }
        }
        Ok(())
    }

    /// The housework begins.
    fn move_in(&self) -> Result<()> {
        let options = &self.shared.options;
        if options.threads {
            let house = match &options.house {
                Some(house) => house.clone(),
                None => House::private(&options.env)?,
            };
            let id = house.join(self.shared.clone(), self.shared.chores());
            *self.house.lock() = Some((house, id));
        }
        Ok(())
    }

    pub(crate) fn start_flusher(&self, writer: LogWriter) -> Result<()> {
        fault::fallible("node.before_flusher")
            .map_err(|e| Error::new(SqlState::IO_ERROR, format!("no thread for the log: {e}")))?;
        let s = self.shared.clone();
        s.pipeline.open(writer);
        let body = move || s.pipeline.run(&s.manager, &s.options.env);
        if self.shared.options.threads {
            let thread = self.shared.thread("flusher", Box::new(body))?;
            *self.flusher.lock() = Some(thread);
        }
        Ok(())
    }

    fn start_following(&self, writer: LogWriter) -> Result<()> {
        let shared = &self.shared;
        shared.manager.set_standby(true);
        let from = shared.manager.marks.floor;
        // What is here may not be published: nothing is shown until the primary says so.
        let marks = Arc::new(ReplicaMarks::new(Position::ZERO));
        marks.received.raise(from);
        marks.persisted.raise(from);
        let moved = Arc::new(Notice::default());
        let sink = Sink {
            manager: shared.manager.clone(),
            sequences: shared.sequences.clone(),
            ranges: shared.ranges.clone(),
            waiters: shared.pipeline.waiters.clone(),
            moved: moved.clone(),
        };
        let (env, store) = (&shared.options.env, shared.manager.store.clone());
        let options = shared.options.replay.clone();
        let (sink, threads) = (Arc::new(sink), shared.options.threads);
        let replay = match threads {
            true => {
                let replay = Replay::start(env, store, marks.clone(), sink, from, options)?;
                Replaying::Threads(replay)
            }
            false => {
                let stepper = Stepper::new(store, marks.clone(), sink, from, options);
                Replaying::Steps(Box::new(Mutex::new(stepper)))
            }
        };
        let outcomes = shared.outcomes.clone();
        let known = shared.term.load(Ordering::SeqCst);
        let heard = shared.dir.heard_term().map_err(failed)?;
        let term = writer.term();
        let ring = shared.options.ring_bytes;
        let mut following =
            Following::new(marks, replay, ring, moved, outcomes, known, heard, term);
        let asks = shared.options.leases.is_some_and(|l| l.asks);
        following.tracker = asks.then(|| Tracker::new(shared.pipeline.region.clone()));
        let following = Arc::new(following);
        *shared.following.lock() = Some(following.clone());
        if !threads {
            let log = Arc::new(Mutex::new(Some(writer)));
            *shared.follower.lock() = Some((Vec::new(), log));
            return Ok(());
        }
        let back = Arc::new(Mutex::new(None));
        let (s, f) = (shared.clone(), following.clone());
        let follow = move || f.run(&s.options.env);
        let (s, f, log) = (shared.clone(), following, back.clone());
        let write = move || {
            let env = &s.options.env;
            *log.lock() = f.own_log.run(writer, &f.marks, &f.moved, env);
        };
        let threads = vec![
            shared.thread("follower", Box::new(follow))?,
            shared.thread("own log", Box::new(write))?,
        ];
        *shared.follower.lock() = Some((threads, back));
        Ok(())
    }

    /// Waits for the end of the replica's threads; the log that they wrote.
    pub(crate) fn join_follower(&self) -> Result<LogWriter> {
        let follower = self.shared.follower.lock().take();
        let (threads, log) = follower.ok_or_else(|| Error::internal("no follower runs"))?;
        if !self.shared.options.threads {
            self.drain(&log);
        }
        for t in threads {
            let ended = t.join();
            ended.map_err(|_| Error::internal("the follower panicked"))?;
        }
        let log = log.lock().take();
        log.ok_or_else(|| Error::internal("the node stops before its log is whole"))
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What a replica's receiver works with; none at a primary.
    pub fn following(&self) -> Option<Arc<Following>> {
        self.shared.following()
    }

    /// What a primary keeps for its replicas.
    pub fn shipping(&self) -> &Shipping {
        &self.shared.pipeline.shipping
    }

    /// The term of this node's log.
    pub fn term(&self) -> u64 {
        let following = self.shared.following();
        let own = self.shared.term.load(Ordering::SeqCst);
        following.map_or(own, |f| f.term().max(own))
    }

    /// The terms of this node's history.
    pub fn terms(&self) -> Vec<(u64, Position)> {
        self.shared.dir.terms()
    }

    /// The newest term that this node has heard of.
    pub fn heard_term(&self) -> u64 {
        let known = self.terms().last().expect("never empty").0;
        // Unreadable, it says nothing: the history's own terms stand.
        self.shared.dir.heard_term().unwrap_or(known)
    }

    /// The history that does not have all that is here: its term, and the position that both have. Unreadable: it may be any.
    pub fn diverged(&self) -> Option<(u64, Position)> {
        let unknown = Some((self.heard_term(), Position::ZERO));
        self.shared.dir.diverged().unwrap_or(unknown)
    }

    /// The data directory's inside, for those who ship from it.
    pub fn dir(&self) -> &DataDir {
        &self.shared.dir
    }

    /// Reads durable groups after `from` out of the segments, up to where the log is durable now.
    pub fn read_log(&self, from: Position) -> Result<Option<LogReader>> {
        let Some(limit) = self.shipping().limit() else {
            return Ok(None);
        };
        let dir = self.shared.dir.log().clone();
        LogReader::follow(dir, self.cluster(), from, limit)
            .map(Some)
            .map_err(failed)
    }

    /// The schema that new statements are bound to.
    pub fn catalog(&self) -> Arc<Catalog> {
        match self.role() {
            Role::Replica => {
                let manager = &self.shared.manager;
                manager.catalog_at(manager.marks.published.get().max(manager.marks.floor))
            }
            _ => self.shared.manager.catalog(),
        }
    }

    /// Whether sessions may read here: what the start found is published. Until then a fail-over that the policy permits could take back
    /// what they see. At a primary that is when as many replicas as `synchronous_replicas` asks for have said that they have it; at a
    /// replica when its primary says so.
    pub fn is_open(&self) -> bool {
        self.marks().is_open() && !self.is_held()
    }

    /// Ready when the node is open.
    pub async fn opened(&self) {
        let let_go = &self.shared.let_go;
        loop {
            let seen = let_go.version();
            if !self.is_held() {
                break;
            }
            let_go.since(seen).await;
        }
        self.published(CommitWait::Published(self.marks().floor))
            .await;
    }

    /// Serves nobody until it is let go: while its replicas are asked how far they are, and from when one of them is ahead.
    pub fn hold(&self, on: bool) {
        self.shared.held.store(on, Ordering::SeqCst);
        self.shared.let_go.moved();
    }

    /// See [`Node::hold`].
    pub fn is_held(&self) -> bool {
        self.shared.held.load(Ordering::SeqCst)
    }

    /// The end of what the start found.
    pub fn recovered_end(&self) -> Position {
        self.marks().floor
    }

    /// What the start found.
    pub fn report(&self) -> &RecoveryReport {
        &self.report
    }

    /// The data directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn clock(&self) -> &dyn env::Clock {
        &*self.shared.options.env.clock
    }

    /// A replica that says nothing for so long is gone.
    pub fn silence(&self) -> Duration {
        self.shared.options.silence
    }

    /// The cluster's id.
    pub fn cluster(&self) -> u128 {
        self.shared.dir.cluster()
    }

    /// Whether what is to be logged waits for room on the disk.
    pub fn is_disk_full(&self) -> bool {
        self.shared.is_disk_full()
    }

    /// What all transactions share.
    pub fn manager(&self) -> &Arc<TxnManager> {
        &self.shared.manager
    }

    /// Who compiles CHECK constraints and defaults.
    pub fn set_compiler(&self, c: Arc<dyn RuleCompiler>) {
        self.shared.manager.set_compiler(c);
    }

    /// Begins a transaction. `autocommit_read`: a single read-only statement, which waits for nothing.
    pub fn begin(&self, options: TxnOptions, autocommit_read: bool) -> Txn {
        let rule = self.topology().stand(autocommit_read);
        self.shared.manager.begin(options, rule == Rule::Published)
    }

    /// Commits at a node that decides by itself: validates and installs on this thread. What the reply waits for ([`Node::published`]).
    pub fn commit(&self, txn: impl Into<Box<Txn>>) -> Result<CommitWait> {
        self.commit_in(txn.into(), &self.shared.pipeline)
    }

    /// The answers of this node's topology, as its role is now.
    #[inline]
    pub fn topology(&self) -> &'static dyn Topology {
        match self.role() {
            Role::Primary => &topology::PRIMARY,
            Role::Replica if self.shared.certifier.get().is_some() => &topology::SITE,
            Role::Replica => &topology::REPLICA,
            Role::Sealed => &topology::SEALED,
        }
    }

    /// Whether this kind of work runs here, as [`Topology::runs`] says. Statements ask several times each, so at a primary it is a look at the role.
    #[inline]
    pub fn runs(&self, work: Work) -> bool {
        match self.role() {
            Role::Primary => topology::PRIMARY.runs(work),
            _ => self.topology().runs(work),
        }
    }

    /// Commits as the topology says. The caller calls [`Node::flush_here`] or [`Node::flush_soon`] next; without that the commit is
    /// flushed some milliseconds later. By a `number` the outcome can be asked for afterwards ([`Node::outcome`]), also after a
    /// change of the primary; 0: it cannot.
    #[inline]
    pub fn committing(&self, txn: impl Into<Box<Txn>>, number: u64) -> Committing {
        self.topology().commit(self, txn.into(), number)
    }

    /// What became of the transaction of this number, which could commit above `after`. At a primary.
    pub fn outcome(&self, number: u64, after: Position) -> Outcome {
        match self.shared.outcomes.ask(number, after) {
            // A crash may take it back still.
            Outcome::Committed(at) if at > self.marks().published.get() => Outcome::Running,
            other => other,
        }
    }

    /// Has what is installed flushed in a moment: for commits that nobody waits for yet.
    pub fn flush_soon(&self) {
        self.shared.pipeline.order.nudge();
    }

    /// Flushes what is installed, or has it flushed, whichever is faster. `alone`: this thread has nothing else to do meanwhile.
    pub fn flush_here(&self, alone: bool) {
        let s = &self.shared;
        s.pipeline.flush_here(&s.manager, &s.options.env, alone);
    }

    /// [`Node::commit`] with an order that does something beside: it passes all on to [`Node::order`].
    pub fn commit_in(&self, mut txn: Box<Txn>, order: &dyn CommitOrder) -> Result<CommitWait> {
        let (writes, durability) = (txn.has_writes(), txn.durability());
        let told = self.told(&txn);
        if writes && !self.is_open() {
            return Err(Error::new(
                SqlState::CANNOT_CONNECT_NOW,
                "this node does not serve yet: its policy asks for replicas that have what is here",
            ));
        }
        let committed = txn.commit_here(order);
        // It lets go of its locks and its snapshot before anything is waited for.
        drop(txn);
        let position = committed?;
        if !writes {
            return Ok(self.seen(position.max(told)));
        }
        Ok(self.promised(durability, position))
    }

    /// What the acknowledgement of a commit at this position waits for.
    pub(crate) fn promised(&self, durability: Durability, position: Position) -> CommitWait {
        let pipeline = &self.shared.pipeline;
        match durability {
            Durability::Off if fault::planted("lease.ack_not_published") => {
                pipeline.publish(position);
                CommitWait::Published(Position::ZERO)
            }
            // Where that takes long, the wait for the disk is one that keeps no thread.
            Durability::Off if pipeline.may_publish_early() && pipeline.publish(position) => {
                pipeline.order.nudge();
                CommitWait::Published(position)
            }
            Durability::On => CommitWait::Decided(position),
            Durability::Off | Durability::Local => {
                pipeline.shipping.acknowledge_early(position, false);
                CommitWait::Flushed(position)
            }
            Durability::RemoteWrite => {
                pipeline.shipping.acknowledge_early(position, true);
                CommitWait::Written(position)
            }
            Durability::RemoteApply => {
                pipeline.shipping.wants_applied(position);
                CommitWait::Applied(position)
            }
        }
    }

    /// Rolls back. What the reply waits for.
    pub fn rollback(&self, txn: impl Into<Box<Txn>>) -> CommitWait {
        let txn = txn.into();
        let snapshot = txn.snapshot().unwrap_or(Position::ZERO);
        self.seen(snapshot.max(self.told(&txn)))
    }

    /// What errors of the transaction have told of, beside what it read.
    fn told(&self, txn: &Txn) -> Position {
        match txn.leaked_newer_state() {
            true => self.shared.pipeline.order.last_given(),
            false => Position::ZERO,
        }
    }

    /// What a reply waits for that shows what was read at this position.
    fn seen(&self, at: Position) -> CommitWait {
        CommitWait::Published(self.topology().shown(self, at))
    }

    /// At a primary: ready when all is published that may have been acknowledged before it led. None: it is. Until then what it shows may
    /// be older than what others have seen.
    pub fn leads_soon(&self) -> Option<PublishedWait> {
        let start = self.view().leads_after?;
        Some(self.published(CommitWait::Published(start)))
    }

    /// What replicas read of this node while it is the primary.
    pub fn region(&self) -> &Arc<Region> {
        &self.shared.pipeline.region
    }

    /// Whether a reply may leave.
    pub fn is_published(&self, held: impl Into<CommitWait>) -> bool {
        held.into().is_released(self.marks())
    }

    /// Ready when the reply may leave.
    pub fn published(&self, held: impl Into<CommitWait>) -> PublishedWait {
        self.shared.pipeline.published(held)
    }

    pub fn marks(&self) -> &Watermarks {
        &self.shared.manager.marks
    }

    /// How long the flush of the log that is under way has taken; none: no flush is, or the disk is full.
    pub fn flush_takes(&self) -> Option<Duration> {
        let since = self.shared.pipeline.flushing_since()?;
        let now = self.clock().monotonic_nanos();
        Some(Duration::from_nanos(now.saturating_sub(since)))
    }

    pub fn flush_stats(&self) -> &FlushStats {
        &self.shared.pipeline.stats
    }

    /// Checkpoints written since the start.
    pub fn checkpoints(&self) -> u64 {
        self.shared.checkpoints.load(Ordering::Relaxed)
    }

    /// (old versions taken away since the start, records that still have some).
    pub fn reclaimed(&self) -> (u64, u64) {
        let (versions, waiting) = &self.shared.reclaimed;
        (
            versions.load(Ordering::Relaxed),
            waiting.load(Ordering::Relaxed),
        )
    }

    /// What is written now does not wait long for the log; 53100 where it would wait for room on the disk.
    fn find_room(&self) -> Result<()> {
        let Shared {
            manager, pipeline, ..
        } = &*self.shared;
        manager.check_accepts_writes()?;
        CommitOrder::wait_for_room(pipeline, &|| manager.check_accepts_writes())
    }

    /// The next value of a sequence.
    pub fn nextval(&self, def: &SequenceDef) -> Result<Drawn> {
        self.topology().draw(self, def)
    }

    /// Sets a sequence; what has to be published before that is told.
    pub fn setval(&self, def: &SequenceDef, value: i64, is_called: bool) -> Result<Position> {
        self.find_room()?;
        let reserve = |upto| log(def.id, upto, &self.shared.pipeline);
        self.shared.sequences.set(def, value, is_called, reserve)
    }

    /// Numbers for a site to give: at most so many. 42P01 for a sequence that is not there any more, 2200H at its limit. What has to be
    /// published before they leave is beside them.
    pub fn draw_range(&self, sequence: Oid, count: u32) -> Result<(Numbers, Position)> {
        self.find_room()?;
        // Before the definition: what was changed at or below is in what is drawn.
        let installed = self.marks().installed.get();
        let (defined, catalog) = self.shared.manager.newest_catalog();
        let Some(Relation::Sequence(def)) = catalog.schema.relation(sequence) else {
            let what = format!("sequence with OID {sequence} does not exist");
            return Err(Error::new(SqlState::UNDEFINED_TABLE, what));
        };
        let reserve = |upto| match env::fault::planted("site.range_unlogged") {
            // Another primary knows nothing of it.
            true => Ok(installed),
            false => log(sequence, upto, &self.shared.pipeline),
        };
        let drawn = self.shared.sequences.take(def, count.max(1), reserve)?;
        let at = drawn.at.max(defined).max(installed);
        Ok((Numbers { at, ..drawn }, drawn.at))
    }

    pub fn sequence_state(&self, def: &SequenceDef) -> (i64, bool) {
        self.shared.sequences.look(def)
    }

    /// Writes a checkpoint now and waits for it.
    pub fn checkpoint(&self) -> Result<()> {
        self.checkpoint_while(&|| Ok(()))
    }

    /// The same; `check_cancelled` is asked every few milliseconds, and an error of it ends the wait, not the checkpoint.
    pub fn checkpoint_while(&self, check_cancelled: &dyn Fn() -> Result<()>) -> Result<()> {
        if !self.shared.options.threads {
            return self.checkpoint_step(true);
        }
        let (state, changed) = &self.shared.checkpoint;
        let mut s = state.lock();
        s.wanted += 1;
        let mine = s.wanted;
        MutexGuard::unlocked(&mut s, || {
            if let Some((house, _)) = &*self.house.lock() {
                house.wake();
            }
        });
        while s.done < mine {
            if self.shared.stopping.load(Ordering::SeqCst) {
                return Err(stopping());
            }
            changed.wait_for(&mut s, LOOK);
            MutexGuard::unlocked(&mut s, check_cancelled)?;
        }
        s.last_error.clone().map_or(Ok(()), Err)
    }

    /// Refuses new writes, flushes what is on its way and ends the threads. On a full disk what waits for room is given up
    /// ([`FlushStats::given_up`]).
    pub fn stop(&self) {
        self.shared.manager.shut_down();
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.checkpoint.1.notify_all();
        self.shared.pipeline.stop();
        if let Some(f) = self.shared.following() {
            f.stop();
            // On a full disk its log stays behind what was received, which is asked for again.
            _ = self.join_follower();
            if let Some(replay) = f.replay.write().take() {
                replay.stop();
            }
        }
        if let Some((house, id)) = self.house.lock().take() {
            house.leave(id);
        }
        if let Some(t) = self.flusher.lock().take()
            && t.join().is_err()
        {
            env::alarm!("canon: the flusher panicked; stopping without it");
        }
        if !self.shared.options.threads {
            while self.append_step().or_else(|| self.sync_step()).is_some() {}
        }
        // The log is at its end. Where that cannot be written the anchor is a moment old, as after a crash.
        if let Err(e) = self.shared.dir.note_reach() {
            env::say!("canon: the anchor could not be written: {e}");
        }
        if let Err(e) = self.forget_leases() {
            env::say!("canon: that no lease is left could not be written: {e}");
        }
        self.shared.pipeline.region.resign();
    }
}

impl Node {
    /// The last step of a node that was stopped: nothing has its insides any more.
    pub(crate) fn take_apart(self) {
        let left = Arc::downgrade(&self.shared);
        drop(self);
        assert_eq!(left.strong_count(), 0, "its threads have ended");
    }
}

impl Local for Node {
    fn commit_here(&self, txn: Box<Txn>, number: u64) -> Result<CommitWait> {
        let order = Quiet(&self.shared.pipeline);
        if number == 0 {
            return self.commit_in(txn, &order);
        }
        let marked = Marked {
            order: &order,
            outcomes: &self.shared.outcomes,
            number,
            once: false,
        };
        self.commit_in(txn, &marked)
    }

    fn commit_elsewhere(&self, txn: Box<Txn>, number: u64) -> Committing {
        self.send_candidate(txn, number)
    }

    fn draw_here(&self, sequence: &SequenceDef) -> Result<Drawn> {
        self.find_room()?;
        let reserve = |upto| log(sequence.id, upto, &self.shared.pipeline);
        let (number, at) = self.shared.sequences.next(sequence, reserve)?;
        Ok(Drawn::Number(number, at))
    }

    fn draw_from_range(&self, sequence: &SequenceDef) -> Drawn {
        self.take_number(sequence)
    }

    fn is_open(&self) -> bool {
        Node::is_open(self)
    }

    fn published(&self) -> Position {
        self.marks().published.get()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Without threads it goes as in a crash.
        if self.shared.options.threads {
            self.stop();
        }
    }
}

impl Shared {
    pub(crate) fn role(&self) -> Role {
        Role::of(self.role.load(Ordering::SeqCst))
    }

    pub(crate) fn following(&self) -> Option<Arc<Following>> {
        match self.role() {
            Role::Replica => self.following.lock().clone(),
            _ => None,
        }
    }

    fn thread(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<JoinHandle> {
        self.options.env.spawn.spawn(name, body).map_err(|e| {
            Error::new(
                SqlState::SYSTEM_ERROR,
                format!("could not start the {name} thread: {e}"),
            )
        })
    }
}

/// Runs the recovery with somebody beside it who reports progress.
fn with_progress<T>(options: &NodeOptions, progress: &Progress, work: impl FnOnce() -> T) -> T {
    let Some(report) = options.on_recovery else {
        return work();
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut waited = 0;
            while !done.load(Ordering::SeqCst) {
                options.env.clock.sleep(Duration::from_millis(20));
                waited += 20;
                if waited % 500 == 0 {
                    report(
                        progress.done_bytes(),
                        progress.total_bytes(),
                        progress.rows(),
                        progress.commits(),
                    );
                }
            }
        });
        let result = work();
        done.store(true, Ordering::SeqCst);
        result
    })
}
