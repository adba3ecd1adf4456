//! Strong reads (`node::reading`, docs/design/fresh-reads.md): at any node, over a network that loses, doubles and delays what is asked of the
//! primary's region, while primaries change in the middle of it.
//!
//! A read arrives, the node's own decider says where its snapshot stands and when it may read, and `invariants::reads` looks at what it
//! sees. Each event at its node is a step: so a read meets its node before, in and after a promotion.
//!
//! A read that may be old begins later than the time that it has to see, and is made with what it has to see then.
//!
//! Left out on purpose: words that both nodes map, and several connections for the fetches of one node.

use base::region::row_hash;
use base::{Consistency, Oid, Position, ReadPolicy, ReadWant, RelId};
use node::reading::{Checking, May, Place, Placing};
use replica::read::{Fetch, Shown, Timestamps, Touch};
use std::collections::BTreeSet;
use std::time::Duration;
use store::Snapshot;

use crate::follower::Follower;
use crate::machine::Running;
use crate::schema::{FURTHER, STOCK, TABLE, key, storage};
use crate::values;
use crate::world::{What, World};

/// Microseconds after which a reader gives up.
const PATIENCE: u64 = 3_000_000;
/// The oldest that a read may be.
const OLDEST: u64 = 200_000;

enum Stage {
    /// It has no snapshot.
    Places(Placing),
    /// Its snapshot stands; what it reads is not known to be here.
    Checks(Snapshot, Checking),
    /// ... and it waits until this is visible.
    Waits(Snapshot, Position),
}

/// One that is under way.
pub struct StrongRead {
    pub node: usize,
    life: u64,
    want: ReadWant,
    /// Microseconds: the node has it from then on.
    begins: u64,
    /// What it has to see.
    pub acknowledged: BTreeSet<(Position, u64)>,
    /// What it reads of.
    pub table: Oid,
    /// Rows by key; none: the table.
    pub keys: Vec<Vec<u8>>,
    stage: Stage,
    /// It has asked for slots, and does so again no sooner.
    again: u64,
}

/// A read at the node's clock that may be so many microseconds old.
fn wants(policy: ReadPolicy, now: u64, age: u64) -> ReadWant {
    ReadWant {
        consistency: match age {
            0 => Consistency::Strong,
            _ => Consistency::Bounded(Duration::from_micros(age)),
        },
        policy,
        arrived: now * 1_000,
    }
}

impl StrongRead {
    fn new(node: usize, begins: u64, want: ReadWant, of: (Oid, Vec<Vec<u8>>)) -> StrongRead {
        StrongRead {
            node,
            life: 0,
            want,
            begins,
            acknowledged: BTreeSet::new(),
            table: of.0,
            keys: of.1,
            stage: Stage::Places(Placing::new(want)),
            again: 0,
        }
    }

    /// One of a transaction at this node, over the table.
    pub fn held(node: usize, acknowledged: BTreeSet<(Position, u64)>) -> StrongRead {
        let want = wants(ReadPolicy::Tracker, 0, 0);
        StrongRead {
            acknowledged,
            ..StrongRead::new(node, 0, want, (TABLE, Vec::new()))
        }
    }

    pub fn may_be_old(&self) -> bool {
        matches!(self.want.consistency, Consistency::Bounded(_))
    }

    fn touches(&self) -> Vec<Touch> {
        let storage: RelId = storage(self.table);
        let row = |k: &Vec<u8>| Touch::Row(storage, row_hash(storage, k));
        let mut all = vec![Touch::Catalog];
        match self.keys.is_empty() {
            true => all.push(Touch::Table(storage)),
            false => all.extend(self.keys.iter().map(row)),
        }
        if self.table == STOCK {
            // As SQL says it: which further record a delta has written is not known before.
            all.push(Touch::Table(crate::schema::storage(FURTHER)));
        }
        all
    }
}

impl World {
    /// A client reads strongly at this node.
    pub fn read_strongly(&mut self, i: usize) {
        let mut keys = match self.dice.percent(30) {
            true => Vec::new(),
            false => (0..1 + self.dice.below(3))
                .map(|_| key(self.dice.below(crate::clients::IDS) as i64))
                .collect(),
        };
        let mut table = TABLE;
        if self.config.stocks && self.stock_dice.percent(30) {
            table = STOCK;
            for k in &mut keys {
                *k = key(self.stock_dice.below(values::IDS) as i64);
            }
        }
        let has_node = match &self.machines[i].up {
            Some(Running::Follower(f)) => f.node.is_some(),
            Some(Running::Primary(_)) => true,
            None => false,
        };
        if !has_node {
            return;
        }
        let now = self.now;
        let policy = match now % 8 {
            0..=4 if self.config.leases => ReadPolicy::Lease,
            5 => ReadPolicy::Lamport,
            6 => ReadPolicy::ReadWait,
            _ => ReadPolicy::Tracker,
        };
        let age = 1 + now % OLDEST;
        let mut reads = vec![(now, wants(policy, now, 0))];
        if now.is_multiple_of(3) {
            // The same is asked later, by a read that may be so old.
            reads.push((now + age, wants(policy, now + age, age)));
        }
        let acknowledged = self.model.all_acknowledged();
        let life = self.machines[i].life;
        for (begins, want) in reads {
            self.strong.push(StrongRead {
                life,
                acknowledged: acknowledged.clone(),
                ..StrongRead::new(i, begins, want, (table, keys.clone()))
            });
        }
    }

    /// A node begins anew, and its readers are gone.
    pub fn sessions_end(&mut self, i: usize) {
        self.strong.retain(|r| r.node != i);
        self.holding.retain(|h| h.node != i);
    }

    /// Reads at a node go on, as far as they can now.
    pub fn reads_go_on(&mut self, i: usize) {
        if !self.strong.iter().any(|r| r.node == i) {
            return;
        }
        let (mine, others) = std::mem::take(&mut self.strong)
            .into_iter()
            .partition(|r| r.node == i);
        self.strong = others;
        let (life, now): (u64, u64) = (self.machines[i].life, self.now);
        for r in mine {
            let r: StrongRead = r;
            if r.life != life || now > r.begins + PATIENCE {
                continue;
            }
            if now < r.begins {
                self.strong.push(r);
                continue;
            }
            let left = self.on_node(i, |w, up| w.read_goes_on(i, up, r));
            self.strong.extend(left.flatten());
        }
    }

    fn read_goes_on(&mut self, i: usize, up: &mut Running, r: StrongRead) -> Option<StrongRead> {
        let (node, follower) = match up {
            Running::Primary(p) => (Some(p.node.clone()), None),
            Running::Follower(f) => (f.node.clone(), Some(f)),
        };
        let Some(node) = node.filter(|n| n.is_open()) else {
            return Some(r);
        };
        let mut nothing = (Timestamps::new(0), Shown::default());
        match follower {
            Some(f) => {
                let left = self.read_steps(&node, (&mut f.timestamps, &f.ages), r);
                self.send_fetches(i, f);
                left
            }
            None => self.read_steps(&node, (&mut nothing.0, &nothing.1), r),
        }
    }

    /// The steps of a read that need no waiting; none left: it has come to its end.
    fn read_steps(
        &mut self,
        node: &node::Node,
        (timestamps, ages): (&mut Timestamps, &Shown),
        mut r: StrongRead,
    ) -> Option<StrongRead> {
        let (view, now) = (node.view(), self.now);
        let following = node.following();
        let clock = self.machines[r.node].env.clock.clone();
        let snapshots = &node.manager().store.snapshots;
        loop {
            let next = Stage::Places(Placing::new(r.want));
            match std::mem::replace(&mut r.stage, next) {
                Stage::Places(mut placing) => {
                    let mut leased = false;
                    let lease = || {
                        let at = following.as_ref()?.leased(&*clock);
                        at.inspect(|_| leased = true)
                    };
                    let begun = placing.begin(&view, ages, lease);
                    self.report.leased += u64::from(leased);
                    let place = match begun {
                        Place::Fetch { .. } => placing.ask(&view, None, timestamps, || r.touches()),
                        place => place,
                    };
                    let at = match place {
                        Place::Newest => {
                            let snapshot = snapshots.take(|| view.visible);
                            self.see(&r, node, &snapshot);
                            return None;
                        }
                        Place::HandedOver => return None,
                        Place::At(at) => at,
                        Place::Leads(_) | Place::Fetch { .. } => {
                            r.stage = Stage::Places(placing);
                            return Some(r);
                        }
                    };
                    self.report.leased_ahead += u64::from(leased && at > view.visible);
                    let snapshot = snapshots.take(|| view.visible.max(at));
                    let checking = Checking::new(&r.want, snapshot.position(), || r.touches());
                    r.stage = Stage::Checks(snapshot, checking);
                }
                Stage::Checks(snapshot, checking) if now < r.again => {
                    r.stage = Stage::Checks(snapshot, checking);
                    return Some(r);
                }
                Stage::Checks(snapshot, mut checking) => {
                    let (at, touches) = (checking.at(), checking.touches());
                    let here = following
                        .as_ref()
                        .filter(|_| checking.is_by_lease())
                        .and_then(|f| f.check_received(at, view.visible, touches));
                    match checking.step(&view, here, timestamps) {
                        May::Read(_) => r.stage = Stage::Waits(snapshot, Position::ZERO),
                        May::Wait(to, _) => r.stage = Stage::Waits(snapshot, to),
                        May::Fetch { .. } => {
                            r.again = now + 2_000;
                            r.stage = Stage::Checks(snapshot, checking);
                            return Some(r);
                        }
                    }
                }
                Stage::Waits(snapshot, to) if to > view.visible => {
                    r.stage = Stage::Waits(snapshot, to);
                    return Some(r);
                }
                Stage::Waits(snapshot, _) => {
                    self.report.ahead += u64::from(snapshot.position() > view.visible);
                    self.see(&r, node, &snapshot);
                    return None;
                }
            }
        }
    }

    fn send_fetches(&mut self, i: usize, f: &mut Follower) {
        for fetch in f.timestamps.begin(self.now * 1_000) {
            self.send_fetch(i, f.target, fetch);
        }
    }

    /// A request is put on its way.
    fn send_fetch(&mut self, i: usize, to: usize, fetch: Fetch) {
        self.report.fetches += 1;
        self.say(|| format!("node {i} fetches from node {to}, {}", fetch.number));
        let life = self.machines[i].life;
        for delay in self.delays() {
            self.later(delay, What::Ask(i, life, to, fetch.clone()));
        }
    }

    /// How long a message takes: not at all when it is lost, twice when it is doubled. No order is kept.
    fn delays(&mut self) -> Vec<u64> {
        let weather = self.net.weather;
        let roll = self.dice.below(100);
        let times = match roll {
            _ if roll < weather.lost => 0,
            _ if roll < weather.lost + weather.doubled => 2,
            _ => 1,
        };
        let mut one = || {
            let late = self.dice.percent(weather.late.max(5));
            100 + self.dice.below(if late { 60_000 } else { 900 })
        };
        (0..times).map(|_| one()).collect()
    }

    /// A request arrives.
    pub fn ask_region(&mut self, i: usize, life: u64, to: usize, fetch: Fetch) {
        if !self.net.reaches(i, to) {
            return;
        }
        let Some(p) = self.machines[to].primary() else {
            return;
        };
        let mut values = Vec::new();
        let read = p.node.region().read(&fetch.words, &mut values);
        read.expect("words that there are");
        let (number, at) = (fetch.number, Position::from_u64(values[3]));
        self.say(|| format!("node {to} answers node {i}, fetch {number}: {at} is published"));
        for delay in self.delays() {
            let answer = What::Answer(i, life, to, fetch.number, values.clone());
            self.later(delay, answer);
        }
    }

    /// An answer arrives.
    pub fn region_answers(&mut self, i: usize, number: u64, values: &[u64]) {
        let now = self.now;
        let next = self.on_node(i, |w, up| {
            let Running::Follower(f) = up else {
                return None;
            };
            let following = f.node.as_ref()?.following()?;
            let followed = following.followed();
            let began = f.timestamps.began(number).unwrap_or(0);
            match f.timestamps.landed(number, values, followed) {
                Ok(at) => {
                    following.published(followed, at);
                    let visible = f.node.as_ref()?.marks().published.get();
                    f.ages.told(followed, at, began, visible);
                }
                Err(why) => w.say(|| format!("node {i} rejects an answer: {why:?}")),
            }
            Some((f.target, f.timestamps.begin(now * 1_000)))
        });
        if let Some((to, fetches)) = next.flatten() {
            for fetch in fetches {
                self.send_fetch(i, to, fetch);
            }
        }
    }

    /// Now and then a node gives up what it waits for: what was lost on the way does not come.
    pub fn reads_time(&mut self, i: usize) {
        let roll = self.dice.percent(20);
        self.on_node(i, |_, up| {
            if let Running::Follower(f) = up
                && roll
            {
                f.timestamps.lost();
            }
        });
    }
}
