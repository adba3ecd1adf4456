//! The nodes of small histories, and what moves between them: groups of the log, candidates and verdicts, one at a time.
//!
//! A site has the end of a replica's connection without the connection: groups go into its ring in whatever order the caller likes, and what the
//! site says that it has lost is sent again from where it is.

use base::schema::{Change, FkAction, Object};
use base::{Oid, Position, Result, SqlState};
use env::{Env, ManualClock, MemDisk, PowerCut};
use node::{Certifier, Next, Node, NodeOptions, Request, Shipped};
use replica::replay::ReplayOptions;
use replica::ship::{RingWriter, Step};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use txn::{TableHandle, TxnOptions};

use crate::histories::tables::{self, Table};
use crate::machine::{Machine, path, table};

/// Steps after which replay that does not end is stuck.
const MOST_STEPS: usize = 10_000;

/// A verdict on its way to the session that waits.
#[derive(Clone, Default)]
pub struct Slot(Arc<Mutex<Option<Result<Position>>>>);

impl Slot {
    pub fn put(&self, verdict: Result<Position>) {
        *self.0.lock().expect("one thread") = Some(verdict);
    }
}

/// What a site has asked and the caller has not fetched.
#[derive(Default)]
pub struct Mailbox(Mutex<Vec<(Request, Slot)>>);

impl Mailbox {
    /// The request that was made last.
    pub fn fetch(&self) -> Option<(Request, Slot)> {
        self.0.lock().expect("one thread").pop()
    }
}

impl Certifier for Mailbox {
    fn certify(
        self: Arc<Self>,
        request: Request,
    ) -> Pin<Box<dyn Future<Output = Result<Position>> + Send>> {
        let slot = Slot::default();
        let mut all = self.0.lock().expect("one thread");
        all.push((request, slot.clone()));
        Box::pin(std::future::poll_fn(move |_| {
            let verdict = slot.0.lock().expect("one thread").take();
            verdict.map_or(Poll::Pending, Poll::Ready)
        }))
    }

    /// The histories have no sequences.
    fn draw(&self, _: Oid, _: u32) {}
}

/// A site.
pub struct Site {
    disk: MemDisk,
    env: Env,
    node: Option<Arc<Node>>,
    ring: Option<RingWriter>,
    pub mailbox: Arc<Mailbox>,
    /// Counts its starts.
    pub life: u64,
}

impl Site {
    pub fn node(&self) -> &Arc<Node> {
        self.node.as_ref().expect("it runs")
    }

    fn start(&mut self) {
        let node = open(&self.env, true);
        node.be_site(self.mailbox.clone());
        let following = node.following().expect("it was started to follow");
        self.ring = following.take_ring();
        self.node = Some(node);
        self.life += 1;
    }

    /// What it shows.
    pub fn shown(&self) -> Position {
        self.node().marks().published.get()
    }

    /// The log is here up to there.
    pub fn received(&self) -> Position {
        let following = self.node().following().expect("it follows");
        following.marks.received.get()
    }
}

fn open(env: &Env, replica: bool) -> Arc<Node> {
    let options = NodeOptions {
        env: env.clone(),
        replica,
        threads: false,
        segment_bytes: 256 << 10,
        ring_bytes: 256 << 10,
        replay: ReplayOptions {
            workers: 2,
            segment_rows: 3,
            slice: 2,
            ..ReplayOptions::default()
        },
        ..NodeOptions::default()
    };
    let node = Node::open(&path(), options);
    Arc::new(node.unwrap_or_else(|e| panic!("the node does not start: {e}")))
}

/// The primary is node 0, the sites are those from 1 on.
pub struct Bench {
    pub primary: Arc<Node>,
    pub sites: Vec<Site>,
    clock: Arc<ManualClock>,
    /// Groups that some site may lack.
    groups: Vec<Arc<Shipped>>,
    /// The end of the last of them.
    last: Position,
    /// Requests made so far.
    pub numbers: u64,
}

impl Bench {
    pub fn new(seed: u64, sites: usize, on_delete: FkAction) -> Bench {
        env::say::set_logger(|_, _| {});
        let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
        let machine = Machine::new(seed, clock.clone(), None);
        drop(machine.open(Some(0xcac0_0000 + u128::from(seed))));
        let primary = open(&machine.env, false);
        let mut bench = Bench {
            primary,
            sites: Vec::new(),
            clock,
            groups: Vec::new(),
            last: Position::ZERO,
            numbers: 0,
        };
        let made = bench.change_schema(tables::changes(on_delete));
        made.unwrap_or_else(|e| panic!("the tables are not made: {e:?}"));
        bench.flush();
        let written = bench.primary.checkpoint_step(true);
        written.unwrap_or_else(|e| panic!("the checkpoint failed: {e}"));
        bench.last = bench.primary.marks().flushed.get();
        bench
            .primary
            .shipping()
            .join("sites", true, "", bench.last, 0);
        for i in 0..sites {
            let disk = machine.disk.fork();
            let mut site = Site {
                env: Machine::new(seed ^ ((1 + i as u64) << 32), bench.clock.clone(), None)
                    .env
                    .with_disk(Arc::new(disk.clone())),
                disk,
                node: None,
                ring: None,
                mailbox: Arc::default(),
                life: 0,
            };
            site.start();
            bench.sites.push(site);
            bench.settle(i + 1);
        }
        bench
    }

    pub fn site(&self, node: usize) -> &Site {
        &self.sites[node - 1]
    }

    pub fn node(&self, node: usize) -> &Arc<Node> {
        match node {
            0 => &self.primary,
            _ => self.site(node).node(),
        }
    }

    /// What a node shows.
    pub fn shown(&self, node: usize) -> Position {
        match node {
            0 => self.primary.marks().installed.get(),
            _ => self.site(node).shown(),
        }
    }

    pub fn handle(&self, node: usize, of: Table) -> Arc<TableHandle> {
        table(self.node(node), of.id())
    }

    /// Another owner for parents, as a role with `ALTER TABLE` would give them. Where that has committed; an error: not now.
    pub fn change_rights(&mut self) -> txn::Result<Position> {
        let mut def = self.handle(0, Table::Parent).table.def.clone();
        def.owner += 1;
        self.change_schema(vec![Change::Put(Object::Table(def))])
    }

    fn change_schema(&mut self, changes: Vec<Change>) -> txn::Result<Position> {
        let mut t = self.primary.begin(TxnOptions::default(), false);
        t.begin_statement()?;
        t.lock_schema()?;
        t.change_schema(changes)?;
        t.end_statement()?;
        Ok(self.primary.commit(t)?.position())
    }

    /// What the primary has installed becomes durable and shown, and can go to sites.
    pub fn flush(&mut self) {
        self.primary.append_step();
        self.primary.sync_step();
        while let Next::Groups(all) = self.primary.shipping().after(self.last) {
            for group in all {
                self.last = group.upto;
                self.groups.push(group);
            }
        }
    }

    /// A site's ring gets the group that it lacks, or, of these, the one so many later. Whether there is one.
    pub fn send(&mut self, node: usize, later: usize) -> bool {
        let site = &self.sites[node - 1];
        let has = site.received();
        let from = self.groups.partition_point(|g| g.upto <= has);
        self.write(node, from + later)
    }

    /// A site's ring gets again what it has. Whether there is something.
    pub fn send_again(&mut self, node: usize) -> bool {
        let has = self.site(node).received();
        let from = self.groups.partition_point(|g| g.upto <= has);
        from > 0 && self.write(node, from - 1)
    }

    fn write(&mut self, node: usize, group: usize) -> bool {
        let Some(group) = self.groups.get(group) else {
            return false;
        };
        let (term, stream) = (self.primary.term(), self.primary.cluster());
        let step = Step {
            term,
            stream,
            after: group.after,
            upto: group.upto,
            published: self.primary.marks().published.get(),
            sent_micros: 1,
        };
        let mut frame = Vec::new();
        step.encode_batch(group.group.as_bytes(), &mut frame);
        let site = &mut self.sites[node - 1];
        let following = site.node().following().expect("it follows");
        let ring = site.ring.as_mut().expect("it is ours");
        ring.write(&frame);
        site.node().take_step();
        if following.take_overrun() {
            // It lacks something before: that comes next.
            let ring = site.ring.as_mut().expect("it is ours");
            ring.restart();
        }
        true
    }

    /// A worker of replay makes a step, and the snapshotter looks.
    pub fn work(&mut self, node: usize, worker: usize) {
        self.clock.advance(Duration::from_millis(1));
        let published = self.primary.marks().published.get();
        let node = self.site(node).node();
        let following = node.following().expect("it follows");
        following.published(self.primary.term(), published);
        node.take_step();
        node.replay_step(worker);
        node.build_step();
        node.snapshot_step();
    }

    /// A site shows all that it has.
    pub fn settle(&mut self, node: usize) {
        for step in 0..MOST_STEPS {
            let to = self.primary.marks().published.get();
            if self.shown(node) >= to.min(self.site(node).received()) {
                return;
            }
            self.work(node, step);
        }
        panic!("site {node} does not show what it has");
    }

    /// A site gets everything and shows it.
    pub fn catch_up(&mut self, node: usize) {
        while self.send(node, 0) {
            self.settle(node);
        }
        self.settle(node);
    }

    /// All that is here is in the sites' own logs, and is sent no more.
    pub fn forget(&mut self) {
        self.groups.clear();
        for site in &self.sites {
            site.node().persist_step(true);
        }
    }

    /// A site's process ends, perhaps its machine, and it comes back. The caller has let go of the node.
    pub fn crash(&mut self, node: usize, cut: PowerCut) {
        let site = &mut self.sites[node - 1];
        site.ring = None;
        let gone = site.node.take().map(|n| Arc::downgrade(&n));
        assert!(gone.is_some_and(|n| n.upgrade().is_none()));
        site.disk.power_cut(cut);
        while site.mailbox.fetch().is_some() {}
        site.start();
        self.settle(node);
    }
}

/// Whether this is an error that a client runs its transaction again for.
pub fn is_lost(e: &base::Error) -> bool {
    e.code() == SqlState::SERIALIZATION_FAILURE
}
