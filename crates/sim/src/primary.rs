//! What the threads of a primary do, one step at a time: transactions, the flusher, senders, checkpoints.

use base::record::CommitBuilder;
use base::region::Region;
use base::schema::encode_changes;
use base::{Error, Held, Position, Result, SqlState};
use commit::{Acked, Order, Quorum};
use replica::ship::evidence::NOT_SHOWN;
use replica::ship::sender::{Command, Event};
use replica::ship::{Facts, Message, Sender};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use txn::CommitOrder;
use wal::{CheckpointReader, DataDir, Error as LogError, LogReader, LogWriter, Recovered};

use crate::forward::Open;
use crate::machine::Engine;
use crate::model::{Promise, Terms};
use crate::world::World;

/// The order, and what went into it.
pub struct Ordered {
    pub order: Order,
    /// What replicas read.
    pub region: Arc<Region>,
    positions: RefCell<HashMap<u64, Position>>,
    made: RefCell<Vec<(Position, Vec<u8>, Vec<u8>)>>,
}

impl CommitOrder for Ordered {
    fn wait_for_room(&self, go_on: &dyn Fn() -> Result<()>) -> Result<()> {
        self.order.wait_for_room(go_on)
    }

    fn begin(&self) -> Result<(Position, u64)> {
        let begun = self.order.begin();
        let (position, ticket) = begun
            .ok_or_else(|| Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, "the node is sealed"))?;
        self.positions.borrow_mut().insert(ticket, position);
        Ok((position, ticket))
    }

    fn ready(&self, ticket: u64, heads: Vec<u8>, data: Vec<u8>) {
        let position = self.positions.borrow_mut().remove(&ticket);
        let position = position.expect("a ticket is finished once");
        let copy = (position, heads.clone(), data.clone());
        self.made.borrow_mut().push(copy);
        node::modified(&self.region, &heads);
        self.order.ready(ticket, heads, data);
    }

    fn abort(&self, ticket: u64) {
        self.positions.borrow_mut().remove(&ticket);
        self.order.abort(ticket);
    }
}

/// A commit whose client waits.
pub struct Pending {
    pub held: Held,
    pub promise: Promise,
}

/// A replica that is connected.
pub struct Link {
    sender: Sender,
    greeted: bool,
    joined: bool,
    /// `Time`s without a word.
    quiet: u32,
    checkpoint: Option<CheckpointReader>,
}

pub struct Primary {
    pub dir: Arc<DataDir>,
    pub engine: Engine,
    pub term: u64,
    pub terms: Terms,
    pub ordered: Ordered,
    log: LogWriter,
    reader: Option<LogReader>,
    /// Appended and not synced: up to here.
    unsynced: Option<Position>,
    /// Everything up to it is durable, and senders were told.
    pub shipped: Position,
    quorum: Quorum,
    links: BTreeMap<usize, Link>,
    reads: VecDeque<(usize, Position)>,
    pub pending: Vec<Pending>,
    /// The highest commit that asked for this disk only, and for the memory of replicas.
    local: Position,
    remote: Position,
    /// Transactions that clients have open.
    pub open: Vec<Open>,
    pub sealing: bool,
    /// To whom it hands over.
    granted: Option<String>,
    /// Readers wait until this is published: recovery keeps no older versions.
    pub floor: Position,
    /// The first position that it gives.
    first: Position,
}

impl Primary {
    /// The primary of the newest term in `dir`, over what was recovered or replayed up to the log's last position; it goes on behind
    /// `next`.
    pub fn new(
        dir: Arc<DataDir>,
        engine: Engine,
        log: LogWriter,
        needed: usize,
        floor: Position,
        next: Position,
    ) -> Primary {
        dir.lead()
            .unwrap_or_else(|e| panic!("that it leads is not written: {e}"));
        let terms = dir.terms();
        let term = terms.last().expect("never empty").0;
        let last = log.last();
        let mut quorum = Quorum::new(needed);
        quorum.begin_term(term);
        let order = Order::new(next, engine.marks().clone());
        let region = engine.marks().region.get_or_init(Arc::default).clone();
        let published = || engine.marks().published.get();
        region.lead(dir.cluster(), term, last, published);
        Primary {
            dir,
            term,
            terms,
            ordered: Ordered {
                order,
                region,
                positions: RefCell::default(),
                made: RefCell::default(),
            },
            log,
            reader: None,
            unsynced: None,
            shipped: last,
            quorum,
            links: BTreeMap::new(),
            reads: VecDeque::new(),
            pending: Vec::new(),
            local: Position::ZERO,
            remote: Position::ZERO,
            open: Vec::new(),
            sealing: false,
            granted: None,
            floor,
            first: next.next_epoch(),
            engine,
        }
    }

    /// From a directory that was recovered.
    pub fn recovered(
        dir: Arc<DataDir>,
        engine: Engine,
        recovered: &Recovered,
        needed: usize,
    ) -> Primary {
        let term = dir.terms().last().expect("never empty").0;
        let log = LogWriter::resume(dir.log().clone(), &recovered.end, term);
        let log = log.unwrap_or_else(|e| panic!("the log does not open: {e}"));
        let sealed = dir.sealed_for();
        let sealed = sealed.unwrap_or_else(|e| panic!("the seal is not readable: {e}"));
        let last = recovered.last;
        let first = node::reach::begin(&dir, recovered, term, false);
        let first = first.unwrap_or_else(|e| panic!("the start is not written: {e}"));
        let mut p = Primary::new(dir, engine, log, needed, last, first);
        if sealed.is_some() {
            p.granted = sealed;
            p.stop_writing();
        }
        p
    }

    /// No commit is taken any more.
    pub fn stop_writing(&mut self) {
        self.sealing = true;
        self.ordered.region.resign();
        self.open.clear();
        self.ordered.order.close();
    }

    /// The first commit of a database is its schema.
    pub fn log_schema(&self) {
        let mut b = CommitBuilder::new();
        let changes = encode_changes(&crate::schema::changes());
        b.push(base::record::RecordKind::Schema, 0, &[], &changes);
        let (position, ticket) = self.ordered.begin().expect("a new order is open");
        let (heads, data) = b.finish(position, 0);
        self.ordered.ready(ticket, heads, data);
    }

    /// An empty commit.
    pub fn log_nothing(&self) {
        let (position, ticket) = self.ordered.begin().expect("a new order is open");
        let (heads, data) = CommitBuilder::new().finish(position, 0);
        self.ordered.ready(ticket, heads, data);
    }

    /// Where read-only work stands; none while it may not be shown.
    pub fn shown(&self) -> Option<Position> {
        let published = self.engine.marks().published.get();
        (published >= self.floor).then_some(published)
    }

    /// The commits made since the last question.
    pub fn made(&self) -> Vec<(Position, Vec<u8>, Vec<u8>)> {
        self.ordered.made.take()
    }

    pub fn is_sealed(&self) -> bool {
        self.sealing && self.ordered.order.is_idle() && self.unsynced.is_none()
    }

    /// Whether this many replicas follow live.
    pub fn joined(&self) -> usize {
        self.links.values().filter(|l| l.joined).count()
    }

    /// A commit has its position; its client waits for this.
    pub fn await_commit(&mut self, at: Position, promise: Promise, apply: bool) {
        let marks = self.engine.marks();
        let held = match promise {
            Promise::Off if marks.flushed.get() >= self.first => {
                marks.publish(at);
                Held::Published(at)
            }
            Promise::Off | Promise::Local => {
                self.local = self.local.max(at);
                Held::Flushed(at)
            }
            Promise::Remote => {
                self.remote = self.remote.max(at);
                Held::Written(at)
            }
            Promise::Policy if apply => Held::Applied(at),
            Promise::Policy => Held::Decided(at),
        };
        self.pending.push(Pending { held, promise });
    }

    /// Moves the watermarks by what is known.
    fn settle(&mut self) {
        let marks = self.engine.marks();
        let flushed = marks.flushed.get();
        let levels = self.quorum.levels(flushed);
        marks.written.raise(levels.written);
        marks.publish(self.local.min(flushed));
        marks.publish(self.remote.min(levels.written));
        marks.decide(levels.decided);
        marks.applied.raise(levels.applied);
        marks.check();
    }
}

impl World {
    /// The flusher writes: what was installed goes to the log, not yet durable.
    pub fn append(&mut self, i: usize, p: &mut Primary) {
        if p.unsynced.is_some() && self.dice.percent(50) {
            return;
        }
        let mut drained = Vec::new();
        let Some(last) = p.ordered.order.drain(1 << 20, &mut drained) else {
            return;
        };
        let mut commits: Vec<wal::Commit> = drained
            .into_iter()
            .map(|l| wal::Commit {
                position: l.position,
                heads: l.heads,
                data: l.data,
            })
            .collect();
        if commits.last().is_none_or(|c| c.position < last) {
            // Holes at the end are made durable too: else positions that replicas know to be empty could be given again
            // after a crash.
            let (heads, data) = CommitBuilder::new().finish(last, 0);
            commits.push(wal::Commit {
                position: last,
                heads,
                data,
            });
        }
        let published = p.engine.marks().published.get();
        let appended = p.log.append_group(&commits, published);
        appended.unwrap_or_else(|e| panic!("append failed: {e}"));
        p.unsynced = Some(last);
        self.say(|| format!("node {i} appends {} commits up to {last}", commits.len()));
    }

    /// The flusher syncs, and hands what is durable to the senders.
    pub fn sync(&mut self, i: usize, p: &mut Primary) {
        let Some(upto) = p.unsynced.take() else {
            return;
        };
        p.log.sync().unwrap_or_else(|e| panic!("sync failed: {e}"));
        let limit = p.log.synced_point().expect("a group was appended");
        if let Some(r) = &mut p.reader {
            r.raise_limit(limit);
        } else {
            let log = p.dir.log().clone();
            let reader = LogReader::follow(log, p.dir.cluster(), p.shipped, limit);
            p.reader = Some(reader.unwrap_or_else(|e| panic!("the log is not readable: {e}")));
        }
        let reader = p.reader.as_mut().expect("just made");
        let mut groups = Vec::new();
        while let Some(g) = reader
            .next_group()
            .unwrap_or_else(|e| panic!("the log is not readable: {e}"))
        {
            groups.push(Arc::new(g));
        }
        self.say(|| format!("node {i} syncs up to {upto}"));
        p.engine.marks().flushed.raise(upto);
        for group in groups {
            let (after, upto) = (p.shipped, group.header().last);
            p.shipped = upto;
            let links: Vec<usize> = p.links.keys().copied().collect();
            for c in links {
                let event = Event::Shipped {
                    after,
                    upto,
                    group: Some(group.clone()),
                };
                // Some go by unseen; the sender notices.
                if !self.dice.percent(5) {
                    self.tell(i, p, c, event);
                }
            }
        }
        assert_eq!(p.shipped, upto, "every drained position is in the log");
        self.settled(i, p);
    }

    /// After anything that may have moved watermarks.
    pub fn settled(&mut self, i: usize, p: &mut Primary) {
        p.settle();
        let published = p.engine.marks().published.get();
        let links: Vec<usize> = p.links.keys().copied().collect();
        for c in links {
            self.tell(i, p, c, Event::Published(published));
            let granted = p.links.get(&c).map(|l| l.sender.node());
            if p.is_sealed() && granted.is_some() && granted == p.granted.as_deref() {
                self.tell(i, p, c, Event::Sealed(p.shipped));
            }
        }
        let marks = p.engine.marks().clone();
        let (done, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut p.pending)
            .into_iter()
            .partition(|a| a.held.is_released(&marks));
        p.pending = waiting;
        for a in done {
            self.acknowledge(i, p, &a);
        }
    }

    /// An event for the sender of a connection, and everything that follows from it.
    fn tell(&mut self, i: usize, p: &mut Primary, c: usize, event: Event) {
        let now = self.now as i64;
        let mut events = VecDeque::from([event]);
        let mut dropped = false;
        while let Some(event) = events.pop_front() {
            let Some(link) = p.links.get_mut(&c).filter(|l| l.greeted) else {
                return;
            };
            let mut out = Vec::new();
            link.sender.handle(event, now, &mut out);
            self.obey(i, p, c, out, &mut events, &mut dropped);
            if dropped {
                return self.drop_link(i, p, c);
            }
        }
    }

    fn obey(
        &mut self,
        i: usize,
        p: &mut Primary,
        c: usize,
        commands: Vec<Command>,
        events: &mut VecDeque<Event>,
        dropped: &mut bool,
    ) {
        for command in commands {
            match command {
                Command::Send(m) => self.send(c, false, m.to_bytes()),
                Command::SendBatch { step, group } => {
                    let mut bytes = Vec::new();
                    step.encode_batch(group.as_bytes(), &mut bytes);
                    self.send(c, false, bytes);
                }
                Command::ReadLog { from, .. } => p.reads.push_back((c, from)),
                Command::OpenCheckpoint => {
                    let newest = p.dir.latest_checkpoint();
                    let newest = newest.unwrap_or_else(|e| panic!("the checkpoint is bad: {e}"));
                    // Without one, the next checkpoint answers.
                    if let Some(checkpoint) = newest {
                        events.push_back(Event::CheckpointOpened {
                            number: checkpoint.manifest().number,
                            bytes: checkpoint.len(),
                            start: checkpoint.manifest().start,
                        });
                        let link = p.links.get_mut(&c).expect("it has just spoken");
                        link.checkpoint = Some(checkpoint);
                    } else {
                        *dropped = true;
                    }
                }
                Command::ReadCheckpoint { offset, bytes } => {
                    let link = &p.links[&c];
                    let checkpoint = link.checkpoint.as_ref().expect("it was opened");
                    let bytes = checkpoint.read_at(offset, bytes as usize);
                    let bytes = bytes.unwrap_or_else(|e| panic!("the checkpoint is bad: {e}"));
                    events.push_back(Event::CheckpointRead { offset, bytes });
                }
                Command::Report { acked, .. } => {
                    let link = &p.links[&c];
                    if link.joined {
                        let acked = Acked {
                            term: p.term,
                            received: acked.received,
                            persisted: acked.persisted,
                            visible: acked.visible,
                        };
                        p.quorum.acked(c as u64, link.sender.node(), acked);
                    }
                }
                Command::Joined => {
                    p.links.get_mut(&c).expect("it has just spoken").joined = true;
                    self.say(|| format!("node {i}: connection {c} has caught up"));
                }
                Command::Seal => {
                    let node = p.links[&c].sender.node().to_owned();
                    if !p.sealing {
                        p.dir
                            .seal_for(&node)
                            .unwrap_or_else(|e| panic!("the seal is not written: {e}"));
                        self.say(|| format!("node {i} is sealed, for {node}"));
                        p.granted = Some(node);
                        p.stop_writing();
                    }
                }
                Command::HeardOfTerm(term) => {
                    self.say(|| format!("node {i} hears of term {term} and takes no more commits"));
                    p.stop_writing();
                    p.dir
                        .hear(term)
                        .unwrap_or_else(|e| panic!("the term is not written: {e}"));
                    self.deposed.insert(i);
                }
                Command::ReadAround(at) => {
                    let around = p.dir.around(at);
                    let around = around.unwrap_or_else(|e| panic!("the log is not readable: {e}"));
                    events.push_back(Event::AroundRead(Box::new(around)));
                }
                Command::Unproven { ours, theirs, why } => self.doubt(i, c, ours, theirs, &why),
                Command::Lost { ours, theirs } => self.lost_log(i, p, c, ours, theirs),
                Command::HintOfTerm(term) => {
                    self.say(|| format!("node {i}: a stranger speaks of term {term}"));
                }
                Command::Close(why) => {
                    self.say(|| format!("node {i} ends connection {c}: {why}"));
                    *dropped = true;
                }
            }
        }
    }

    /// A replica holds what this primary has lost: it serves nobody any more.
    fn lost_log(&mut self, i: usize, p: &mut Primary, c: usize, ours: Position, theirs: Position) {
        let replica = self.net.connections[c].replica;
        self.say(|| {
            format!(
                "node {i} has lost log: node {replica} has {theirs}, and here {ours} is the end"
            )
        });
        assert_eq!(
            self.config.liar,
            Some(i),
            "node {i} stops for node {replica}, and its disk never lied"
        );
        p.stop_writing();
        self.deposed.insert(i);
        self.report.stopped += 1;
    }

    /// A replica says that it is ahead, and has not shown it. That it is so, the model knows.
    fn doubt(&mut self, i: usize, c: usize, ours: Position, theirs: Position, why: &str) {
        let replica = self.net.connections[c].replica;
        self.say(|| format!("node {i} ends at {ours} and does not believe node {replica}: {why}"));
        let held = self.machines[replica].holds();
        let honest = held.is_some_and(|(_, last)| last >= theirs);
        // Words are lost on the way, and said again on the next connection.
        let unheard = why == NOT_SHOWN;
        assert!(
            !honest || unheard,
            "node {i} does not believe node {replica}, which holds {theirs}: {why}"
        );
        self.report.doubted += 1;
    }

    /// The connection is no more for the primary; the other end hears of it.
    pub fn drop_link(&mut self, i: usize, p: &mut Primary, c: usize) {
        if p.links.remove(&c).is_some() {
            p.quorum.left(c as u64);
            self.hang_up(c, false);
            self.say(|| format!("node {i} has lost connection {c}"));
        }
    }

    /// A message from a replica.
    pub fn primary_hears(&mut self, i: usize, p: &mut Primary, c: usize, message: Message) {
        if matches!(message, Message::Hello { .. }) {
            if p.links.contains_key(&c) {
                return;
            }
            let reaches = p.dir.log().reaches_back_to();
            let reaches = reaches.unwrap_or_else(|e| panic!("the log is not readable: {e}"));
            let facts = Facts {
                cluster: p.dir.cluster(),
                term: p.term,
                terms: p.terms.clone(),
                lives: p
                    .dir
                    .lives()
                    .unwrap_or_else(|e| panic!("lives are not readable: {e}")),
                last: p.shipped,
                reaches_back_to: reaches.unwrap_or(p.shipped),
                deposed: self.deposed.contains(&i),
            };
            let (mut sender, mut out) = (Sender::new(self.prove(i, c, p)), Vec::new());
            sender.greet(message, facts, &mut out);
            let link = Link {
                sender,
                greeted: true,
                joined: false,
                quiet: 0,
                checkpoint: None,
            };
            p.links.insert(c, link);
            let (mut events, mut dropped) = (VecDeque::new(), false);
            self.obey(i, p, c, out, &mut events, &mut dropped);
            if dropped {
                return self.drop_link(i, p, c);
            }
            events.push_back(Event::Published(p.engine.marks().published.get()));
            events.push_back(Event::Time);
            for event in events {
                self.tell(i, p, c, event);
            }
        } else if let Some(link) = p.links.get_mut(&c) {
            link.quiet = 0;
            self.tell(i, p, c, Event::Message(message));
        }
        self.settled(i, p);
    }

    /// A tenth of a second has passed.
    pub fn primary_time(&mut self, i: usize, p: &mut Primary) {
        let links: Vec<usize> = p.links.keys().copied().collect();
        for c in links {
            let link = p.links.get_mut(&c).expect("just listed");
            link.quiet += 1;
            if link.quiet > 60 {
                self.drop_link(i, p, c);
            } else {
                // Where the log ends: shows a sender what went by unseen.
                let end = Event::Shipped {
                    after: p.shipped,
                    upto: p.shipped,
                    group: None,
                };
                self.tell(i, p, c, end);
                self.tell(i, p, c, Event::Time);
            }
        }
        self.settled(i, p);
    }

    /// Answers a sender that reads the log.
    pub fn read_log(&mut self, i: usize, p: &mut Primary) {
        let Some((c, from)) = p.reads.pop_front() else {
            return;
        };
        let (mut groups, mut upto) = (Vec::new(), from);
        let mut read = || -> wal::Result<()> {
            let log = p.dir.log().clone();
            let mut reader = match p.log.synced_point() {
                Some(limit) => LogReader::follow(log, p.dir.cluster(), from, limit)?,
                // No segment was begun since the start; older ones may be there.
                None => LogReader::open(log, p.dir.cluster(), from)?,
            };
            while groups.len() < 4 {
                match reader.next_group()? {
                    Some(g) if g.header().last <= p.shipped => {
                        upto = g.header().last;
                        groups.push(Arc::new(g));
                    }
                    _ => {
                        upto = p.shipped.max(from);
                        break;
                    }
                }
            }
            Ok(())
        };
        let event = match read() {
            Ok(()) => Event::LogRead { from, groups, upto },
            Err(LogError::Missing { .. }) => Event::LogMissing,
            Err(e) => panic!("node {i}: the log is not readable: {e}"),
        };
        self.tell(i, p, c, event);
    }

    /// Writes a checkpoint and lets the log before it go, but for what connected replicas need, and sometimes even that.
    pub fn checkpoint(&mut self, i: usize, p: &mut Primary) {
        if p.shown().is_none() || p.engine.marks().decided.get() < p.floor {
            return;
        }
        let needed = p.links.values().filter_map(|l| l.sender.retain()).min();
        let keep = match self.dice.percent(70) {
            true => needed.unwrap_or(Position::MAX),
            false => Position::MAX,
        };
        let e = &p.engine;
        let (all_here, on) = (|_| Ok(()), || Ok(()));
        let written = node::checkpoint::write(&p.dir, &e.manager, &e.sequences, keep, all_here, on);
        let (at, rows) = written.unwrap_or_else(|e| panic!("the checkpoint failed: {e}"));
        self.say(|| format!("node {i} writes a checkpoint at {at}: {rows} rows"));
        self.report.checkpoints += 1;
    }
}
