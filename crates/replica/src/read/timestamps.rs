//! Linear Lamport timestamps (SCC §4.1) and the check of what is read against the primary's slots (§4.2), without clock or socket.
//!
//! ```text
//! local time ──────▶   a1   began          a2        landed: published = t, slots
//!                      │     ├──────── fetch 1 ────────┤
//! a read that arrived at a1 takes t: the fetch began later. One of a2 may not: it needs a fetch that begins after a2.
//! ```
//! **A timestamp** for a read that arrived at `a` is *published* of the primary from a fetch that began at `a` or later, whoever began it.
//! Whoever finds none that has landed joins one in flight, or waits for the next, which begins when none is in flight ([`Timestamps::begin`]); so
//! any number of reads cost one fetch per round trip, and one more where slots are missing. (With more in flight a read would wait for less than
//! a round trip and a half, but fewer would share a fetch, and fetches are what the processors of both nodes pay for.)
//!
//! **A slot value** is of use to a read at `t` if it was fetched after t was published. Fetches read *published* first and slots after it: a
//! value is kept with the *published* of its own fetch, and serves every `t` up to that, from any fetch, in whatever order
//! they come back. (The paper compares local times; this needs none.)
//!
//! **Levels.** For visible v < t: global slot <= v, or the catalog's and for each table the table's slot <= v or (rows by primary key) the
//! bucket's: read at t at once. Else wait until v reaches the smaller of the slot and t, for the last that is there: not for the whole log.
//!
//! Which words go with a fetch: what was asked for, and the tables that were asked for lately, so that most reads have timestamp and
//! slots in one round trip.
//!
//! **Who waits is not counted**: what is kept of those who ask is their latest arrival and the words that they will want, no more of them than go
//! with a fetch. So nothing grows while nothing can be fetched. (Reads that fetch for themselves say when they are gone.)
//!
//! Left out on purpose: when to give up (the session's).

use base::region::{
    CATALOG_WORD, CLUSTER_WORDS, GLOBAL_WORD, PUBLISHED_WORD, TERM_WORD, bucket_slot, table_slot,
};
use base::{Position, RelId};
use std::collections::{BTreeSet, HashMap};

use super::memory::MOST_WORDS;

/// Most fetches in flight, those of reads that want their own aside; and when slots are missing.
const FLIGHTS: usize = 1;
const FLIGHTS_FOR_SLOTS: usize = 2;
/// Most words that are wanted of the next.
const MOST_WANTED: usize = MOST_WORDS - HEAD.len() - 1;
/// A table that was asked for goes with so many fetches more.
const HOT_FOR: u64 = 64;
/// Most of them.
const HOT: usize = 64;
/// The words before the slots.
const HEAD: [u32; 6] = [
    TERM_WORD,
    CLUSTER_WORDS[0],
    CLUSTER_WORDS[1],
    PUBLISHED_WORD,
    GLOBAL_WORD,
    CATALOG_WORD,
];

/// Words to read now, in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fetch {
    pub number: u64,
    pub words: Vec<u32>,
}

/// What there is for a read that wants a timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// From a fetch that has landed.
    Known(Position),
    /// With a fetch that is in flight, or that others wait for: ask again when one has landed.
    Joined,
    /// It is the first who asks for the next: see [`Timestamps::begin`], and ask again when one has landed.
    First,
}

/// What a read touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// The schema.
    Catalog,
    /// Any rows of a storage.
    Table(RelId),
    /// The row with this hash of storage and primary key (`base::region::row_hash`), there or not.
    Row(RelId, u64),
    /// What has no versions: everything has to be here.
    All,
}

/// What was enough to read, or what is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything up to the timestamp is visible.
    Visible,
    Global,
    Catalog,
    Table,
    Row,
}

/// Whether what a read touches may be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Now, and from now on, at the timestamp.
    Read(Level),
    /// Slots are missing: see [`Timestamps::begin`], and check again when a fetch has landed.
    Missing,
    /// When this is visible.
    Wait(Position, Level),
}

/// Why an answer is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// Nobody waits for it.
    Unknown,
    /// Its node is not the primary, or ceased to be while it was read.
    NotPrimary,
    Cluster(u128),
    /// It is of another term than the one that is followed.
    Term {
        theirs: u64,
        followed: u64,
    },
    Malformed,
}

struct Flight {
    number: u64,
    began: u64,
    words: Vec<u32>,
    /// Of one read only (policy read-wait).
    alone: bool,
}

/// See the head of the file.
pub struct Timestamps {
    cluster: u128,
    term: u64,
    number: u64,
    /// The newest that landed: when it began, and *published*.
    last: Option<(u64, Position)>,
    flights: Vec<Flight>,
    /// Fetches for one read each, with what they brought; and those that have not begun.
    alone: HashMap<u64, Option<Position>>,
    waiting: Vec<u64>,
    /// The latest arrival of those who found nothing.
    asked: Option<u64>,
    /// Words of the next fetch.
    wanted: BTreeSet<u32>,
    /// Somebody needs some of them now.
    missing: bool,
    /// Values of slots (and the global and the catalog's), each with *published* of its fetch.
    slots: HashMap<u32, (Position, Position)>,
    /// Tables asked for lately, and until which fetch they go along.
    hot: HashMap<u32, u64>,
}

impl Timestamps {
    /// Of the primary of this cluster.
    pub fn new(cluster: u128) -> Timestamps {
        Timestamps {
            cluster,
            term: 0,
            number: 0,
            last: None,
            flights: Vec::new(),
            alone: HashMap::new(),
            waiting: Vec::new(),
            asked: None,
            wanted: BTreeSet::new(),
            missing: false,
            slots: HashMap::new(),
            hot: HashMap::new(),
        }
    }

    /// A timestamp for a read that arrived at this time, or a place among those who wait for one. Times are of any clock that does not go back.
    /// The slots of `touches` come with it: its read needs no second fetch.
    pub fn ask(&mut self, arrived: u64, touches: impl FnOnce() -> Vec<Touch>) -> Ask {
        if let Some(at) = self.known(arrived) {
            return Ask::Known(at);
        }
        if self.flights.iter().any(|f| !f.alone && f.began >= arrived) {
            return Ask::Joined;
        }
        for touch in touches() {
            if let Touch::Table(t) | Touch::Row(t, _) = touch {
                self.want(table_slot(t));
            }
            if let Touch::Row(_, hash) = touch {
                self.want(bucket_slot(hash));
            }
        }
        let first = self.asked.is_none();
        self.asked = self.asked.max(Some(arrived));
        if first { Ask::First } else { Ask::Joined }
    }

    /// A timestamp for a read that arrived at this time, if there is one.
    pub fn known(&self, arrived: u64) -> Option<Position> {
        let fresh = |began: u64| began >= arrived || env::fault::planted("read.old_fetch");
        self.last.filter(|l| fresh(l.0)).map(|l| l.1)
    }

    fn want(&mut self, word: u32) {
        if self.wanted.len() < MOST_WANTED && !HEAD.contains(&word) {
            self.wanted.insert(word);
        }
    }

    /// A fetch for one read and no other, with this number; [`Timestamps::take_alone`] has what it brought. Whoever asked and does not wait
    /// for it says so ([`Timestamps::forget`]).
    pub fn ask_alone(&mut self) -> u64 {
        self.number += 1;
        self.alone.insert(self.number, None);
        self.waiting.push(self.number);
        self.number
    }

    /// What a fetch for one read brought; `Err`: it was lost. None: it is under way.
    pub fn take_alone(&mut self, number: u64) -> Option<Result<Position, ()>> {
        let at = match self.alone.get(&number) {
            None => return Some(Err(())),
            Some(at) => Ok((*at)?),
        };
        self.alone.remove(&number);
        Some(at)
    }

    /// Nobody waits for this fetch for one read.
    pub fn forget(&mut self, number: u64) {
        self.alone.remove(&number);
        self.waiting.retain(|n| *n != number);
    }

    /// Whether [`Timestamps::begin`] may have something.
    pub fn is_due(&self) -> bool {
        self.asked.is_some() || self.missing || !self.waiting.is_empty()
    }

    /// What is to be sent now. Call it when somebody has asked, and when a fetch has landed; others who are about to ask may go first.
    pub fn begin(&mut self, now: u64) -> Vec<Fetch> {
        let alone = std::mem::take(&mut self.waiting).into_iter();
        let mut all: Vec<Fetch> = alone.map(|n| self.launch(n, now, true)).collect();
        let flying = self.flights.iter().filter(|f| !f.alone).count();
        let timestamp = self.asked.is_some() && flying < FLIGHTS;
        if timestamp || self.missing && flying < FLIGHTS_FOR_SLOTS {
            self.asked = None;
            self.missing = false;
            self.number += 1;
            all.push(self.launch(self.number, now, false));
        }
        all
    }

    /// Whether what is touched may be read at `at`, where everything up to `visible` is here. Call it with a look at *visible* that is
    /// not newer than the call.
    pub fn check(&mut self, at: Position, visible: Position, touches: &[Touch]) -> Check {
        for touch in touches {
            if let Touch::Table(t) | Touch::Row(t, _) = *touch {
                let word = table_slot(t);
                if self.hot.len() < HOT || self.hot.contains_key(&word) {
                    self.hot.insert(word, self.number + HOT_FOR);
                }
            }
        }
        match decide(at, visible, touches, |word| self.slot(word, at)) {
            Ok(check) => check,
            Err(missing) => {
                let brought = |w: &u32| self.flights.iter().any(|f| f.words.contains(w));
                if !missing.iter().all(brought) {
                    missing.into_iter().for_each(|w| self.want(w));
                    self.missing = true;
                }
                Check::Missing
            }
        }
    }

    /// When a fetch that is in flight began.
    pub fn began(&self, number: u64) -> Option<u64> {
        let flight = self.flights.iter().find(|f| f.number == number);
        flight.map(|f| f.began)
    }

    /// The answer to a fetch came: these values, while the node follows `followed`. *Published* in it. Wake all who wait, and see
    /// [`Timestamps::begin`]; rejected: who waits asks again when the caller has waited a little.
    pub fn landed(
        &mut self,
        number: u64,
        values: &[u64],
        followed: u64,
    ) -> Result<Position, Rejected> {
        let i = self.flights.iter().position(|f| f.number == number);
        let flight = self.flights.remove(i.ok_or(Rejected::Unknown)?);
        let took = self.take(&flight, values, followed);
        match &took {
            Err(_) => _ = self.alone.remove(&number),
            Ok(at) => {
                if let Some(brought) = self.alone.get_mut(&number) {
                    *brought = Some(*at);
                }
            }
        }
        took
    }

    fn take(&mut self, f: &Flight, values: &[u64], followed: u64) -> Result<Position, Rejected> {
        if values.len() != f.words.len() {
            return Err(Rejected::Malformed);
        }
        let term = values[0];
        if term == 0 || values.last() != Some(&term) {
            return Err(Rejected::NotPrimary);
        }
        let cluster = u128::from(values[1]) << 64 | u128::from(values[2]);
        if cluster != self.cluster {
            return Err(Rejected::Cluster(cluster));
        }
        if term != followed {
            let theirs = term;
            return Err(Rejected::Term { theirs, followed });
        }
        if term != self.term {
            // Positions of another history: they may never be reached in this one.
            self.slots.clear();
            self.last = None;
            self.term = term;
        }
        let at = Position::from_u64(values[3]);
        for (word, value) in f.words.iter().zip(values).skip(4) {
            let new = (Position::from_u64(*value), at);
            let old = self.slots.entry(*word).or_insert(new);
            if old.1 <= at {
                *old = new;
            }
        }
        // The word at the end is the term's.
        self.slots.remove(&TERM_WORD);
        if !f.alone && self.last.is_none_or(|l| l.0 <= f.began) {
            self.last = Some((f.began, at));
        }
        Ok(at)
    }

    /// The connection ended, or begins: nothing that is in flight lands. Wake all who wait.
    pub fn lost(&mut self) {
        self.flights.clear();
        self.alone.clear();
        self.waiting.clear();
        self.asked = None;
        self.wanted.clear();
        self.missing = false;
    }

    fn slot(&self, word: u32, at: Position) -> Option<Position> {
        let (value, as_of) = self.slots.get(&word)?;
        (*as_of >= at).then_some(*value)
    }

    fn launch(&mut self, number: u64, began: u64, alone: bool) -> Fetch {
        let mut words = HEAD.to_vec();
        if !alone {
            self.hot.retain(|_, until| *until > number);
            self.wanted.extend(self.hot.keys());
            let slots = std::mem::take(&mut self.wanted).into_iter();
            words.extend(slots.take(MOST_WANTED));
        }
        words.push(TERM_WORD);
        self.flights.push(Flight {
            number,
            began,
            words: words.clone(),
            alone,
        });
        Fetch { number, words }
    }
}

/// The rule: whether what is touched may be read at `at` where everything up to `visible` is here. `slot` gives the value of a word, read
/// after `at` was published; `Err`: it did not know these.
pub fn decide(
    at: Position,
    visible: Position,
    touches: &[Touch],
    mut slot: impl FnMut(u32) -> Option<Position>,
) -> Result<Check, Vec<u32>> {
    if visible >= at {
        return Ok(Check::Read(Level::Visible));
    }
    if touches.contains(&Touch::All) {
        return Ok(Check::Wait(at, Level::Visible));
    }
    let mut missing = Vec::new();
    match slot(GLOBAL_WORD) {
        Some(global) if global <= visible => return Ok(Check::Read(Level::Global)),
        Some(_) => {}
        None => missing.push(GLOBAL_WORD),
    }
    let (mut target, mut level) = (Position::ZERO, Level::Catalog);
    for touch in touches {
        let slots = match *touch {
            Touch::Catalog | Touch::All => [Some((CATALOG_WORD, Level::Catalog)), None],
            Touch::Table(t) => [Some((table_slot(t), Level::Table)), None],
            Touch::Row(t, hash) => [
                Some((table_slot(t), Level::Table)),
                Some((bucket_slot(hash), Level::Row)),
            ],
        };
        // The coarser level is enough if it is satisfied; else the lower of the two is waited for.
        let mut least: Option<(Position, Level)> = None;
        let mut absent = false;
        for (word, of) in slots.into_iter().flatten() {
            match slot(word) {
                Some(v) if least.is_none_or(|l| v < l.0) => least = Some((v, of)),
                Some(_) => {}
                None => {
                    missing.push(word);
                    absent = true;
                }
            }
            if least.is_some_and(|l| l.0 <= visible) {
                break;
            }
        }
        if let Some((v, of)) = least.filter(|_| !absent) {
            level = level.max(of);
            if v > visible {
                target = target.max(v.min(at));
            }
        }
    }
    match target {
        _ if !missing.is_empty() => Err(missing),
        Position::ZERO => Ok(Check::Read(level)),
        target => Ok(Check::Wait(target, level)),
    }
}

#[cfg(test)]
mod tests;
