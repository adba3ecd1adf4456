//! Strong reads (`replica::read`, docs/design/fresh-reads.md): at any node, over a network that loses, doubles and delays what is asked of the
//! primary's region, while primaries change in the middle of it.
//!
//! A read arrives, gets its timestamp from the machine that the server uses, takes its snapshot there, and reads when the slots say that it
//! may: then `invariants::reads` looks at what it sees.
//!
//! A read that may be so old is a strong one that arrived so much earlier: it is made then, with what it has to see, and begins later. Only those
//! are looked at that what a node shows is new enough for: they ask nothing.

use base::Position;
use base::region::row_hash;
use base::{Oid, RelId};
use replica::read::{Ask, Check, Fetch, Touch};
use std::collections::BTreeSet;
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
    /// It has no timestamp.
    Asks,
    /// It stands here; what it reads is not known to be here.
    Checks(Snapshot),
    /// ... and it waits until this is visible.
    Waits(Snapshot, Position),
}

/// One that is under way.
pub struct StrongRead {
    pub node: usize,
    life: u64,
    arrived: u64,
    /// Later than it arrived: it may be so old.
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

impl StrongRead {
    /// One of a transaction at this node, over the table.
    pub fn held(node: usize, acknowledged: BTreeSet<(Position, u64)>) -> StrongRead {
        StrongRead {
            node,
            life: 0,
            arrived: 0,
            begins: 0,
            acknowledged,
            table: TABLE,
            keys: Vec::new(),
            stage: Stage::Asks,
            again: 0,
        }
    }

    pub fn may_be_old(&self) -> bool {
        self.begins > self.arrived
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
        let read = StrongRead {
            node: i,
            life: self.machines[i].life,
            arrived: self.now,
            begins: self.now,
            acknowledged: self.model.all_acknowledged(),
            table,
            keys,
            stage: Stage::Asks,
            again: 0,
        };
        if self.now.is_multiple_of(3) {
            self.strong_later(&read);
        }
        match &self.machines[i].up {
            Some(Running::Follower(f)) if f.node.is_some() => self.strong.push(read),
            // One that does not know whether it leads sends readers elsewhere.
            Some(Running::Primary(p)) if p.node.region().term() != 0 => {
                let at = p.node.marks().published.get();
                let snapshot = p.node.manager().store.snapshots.take(|| at);
                self.check_read(&read, &snapshot);
            }
            _ => {}
        }
    }

    /// The same is asked later, of what is shown then.
    fn strong_later(&mut self, read: &StrongRead) {
        if matches!(&self.machines[read.node].up, Some(Running::Follower(f)) if f.node.is_some()) {
            self.strong.push(StrongRead {
                begins: self.now + 1 + self.now % OLDEST,
                acknowledged: read.acknowledged.clone(),
                keys: read.keys.clone(),
                stage: Stage::Asks,
                ..*read
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
            let left = self.on_node(i, |w, up| match up {
                Running::Follower(f) => w.read_goes_on(i, f, r),
                // It was promoted meanwhile: such a reader asks again.
                Running::Primary(_) => None,
            });
            self.strong.extend(left.flatten());
        }
    }

    fn read_goes_on(
        &mut self,
        i: usize,
        f: &mut Follower,
        mut r: StrongRead,
    ) -> Option<StrongRead> {
        let shown = f.shown();
        let (Some(visible), Some(node)) = (shown, f.node.clone()) else {
            return Some(r);
        };
        let now = self.now;
        let snapshots = &node.manager().store.snapshots;
        if r.may_be_old() {
            if f.as_of.reached(visible).is_some_and(|b| b >= r.arrived) {
                let snapshot = snapshots.take(|| visible);
                self.see(&r, &node, &snapshot);
            }
            return None;
        }
        loop {
            match std::mem::replace(&mut r.stage, Stage::Asks) {
                Stage::Asks => match f.timestamps.ask(r.arrived, || r.touches()) {
                    Ask::Known(at) => {
                        let stand = || visible.max(at);
                        let snapshot = snapshots.take(stand);
                        r.stage = Stage::Checks(snapshot);
                        continue;
                    }
                    Ask::Joined | Ask::First => {}
                },
                Stage::Checks(snapshot) if now >= r.again => {
                    let touches = r.touches();
                    let at = snapshot.position();
                    match f.timestamps.check(at, visible, &touches) {
                        Check::Read(_) => {
                            self.report.ahead += u64::from(at > visible);
                            self.see(&r, &node, &snapshot);
                            return None;
                        }
                        Check::Wait(to, _) => {
                            r.stage = Stage::Waits(snapshot, to);
                            if to > visible {
                                return Some(r);
                            }
                            continue;
                        }
                        Check::Missing => {
                            r.again = now + 2_000;
                            r.stage = Stage::Checks(snapshot);
                        }
                    }
                }
                Stage::Waits(snapshot, to) if to <= visible => {
                    self.report.ahead += u64::from(snapshot.position() > visible);
                    self.see(&r, &node, &snapshot);
                    return None;
                }
                waits => r.stage = waits,
            }
            for fetch in f.timestamps.begin(now) {
                self.send_fetch(i, f.target, fetch);
            }
            return Some(r);
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
                    f.as_of.told(followed, at, began);
                }
                Err(why) => w.say(|| format!("node {i} rejects an answer: {why:?}")),
            }
            Some((f.target, f.timestamps.begin(now)))
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
