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
    known: HashMap<u32, (Position, Position)>,
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
            known: HashMap::new(),
            hot: HashMap::new(),
        }
    }

    /// A timestamp for a read that arrived at this time, or a place among those who wait for one. Times are of any clock that does not go back.
    /// The slots of `touches` come with it: its read needs no second fetch.
    pub fn ask(&mut self, arrived: u64, touches: impl FnOnce() -> Vec<Touch>) -> Ask {
        let fresh = |began: u64| began >= arrived || env::fault::planted("read.old_fetch");
        if let Some((_, at)) = self.last.filter(|l| fresh(l.0)) {
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
            self.known.clear();
            self.last = None;
            self.term = term;
        }
        let at = Position::from_u64(values[3]);
        for (word, value) in f.words.iter().zip(values).skip(4) {
            let new = (Position::from_u64(*value), at);
            let old = self.known.entry(*word).or_insert(new);
            if old.1 <= at {
                *old = new;
            }
        }
        // The word at the end is the term's.
        self.known.remove(&TERM_WORD);
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
        let (value, as_of) = self.known.get(&word)?;
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
mod tests {
    use super::*;
    use base::record::{CommitBuilder, RecordKind};
    use base::region::{Region, row_hash};

    const CLUSTER: u128 = 0xca;

    fn p(n: u64) -> Position {
        Position::from_u64(n)
    }

    /// A primary of term 3 that has published this.
    fn primary(at: u64) -> Region {
        let r = Region::default();
        r.lead(CLUSTER, 3, Position::ZERO, Position::ZERO);
        r.publish(p(at));
        r
    }

    fn write(r: &Region, at: u64, table: u32, key: &[u8]) {
        let mut b = CommitBuilder::new();
        b.push(RecordKind::Put, table, key, b"");
        r.modified(&b.finish(p(at), 0).0);
        r.publish(p(at));
    }

    fn read(r: &Region, f: &Fetch) -> Vec<u64> {
        let mut values = Vec::new();
        r.read(&f.words, &mut values).unwrap();
        values
    }

    fn land(t: &mut Timestamps, r: &Region, f: &Fetch) {
        t.landed(f.number, &read(r, f), 3).unwrap();
    }

    fn ask(t: &mut Timestamps, arrived: u64) -> Ask {
        t.ask(arrived, Vec::new)
    }

    /// The fetch that begins now, if one does.
    fn next(t: &mut Timestamps, now: u64) -> Option<Fetch> {
        let mut all = t.begin(now);
        assert!(all.len() < 2, "{all:?}");
        all.pop()
    }

    /// The fetch for one who asks.
    fn begun(t: &mut Timestamps, arrived: u64, now: u64) -> Fetch {
        assert_eq!(ask(t, arrived), Ask::First);
        next(t, now).expect("a fetch begins")
    }

    #[test]
    fn a_timestamp_serves_who_arrived_before_its_fetch_began() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(40));
        let first = begun(&mut t, 5, 10);
        assert_eq!(ask(&mut t, 9), Ask::Joined);
        assert_eq!(ask(&mut t, 10), Ask::Joined);
        assert!(!t.is_due());
        // They arrived after the fetch began.
        assert_eq!(ask(&mut t, 13), Ask::First);
        assert_eq!(ask(&mut t, 12), Ask::Joined);
        assert_eq!(next(&mut t, 14), None, "one is in flight");
        assert!(t.is_due());
        r.publish(p(41));
        land(&mut t, &r, &first);
        assert_eq!(ask(&mut t, 10), Ask::Known(p(41)));
        assert_eq!(ask(&mut t, 11), Ask::Joined);
        // All who waited for a place go with one.
        let second = next(&mut t, 21).expect("somebody waits for it");
        assert_eq!(ask(&mut t, 21), Ask::Joined);
        land(&mut t, &r, &second);
        assert_eq!(ask(&mut t, 21), Ask::Known(p(41)));
        assert_eq!(next(&mut t, 22), None);
        assert_eq!(t.landed(second.number, &[], 3), Err(Rejected::Unknown));
    }

    /// With slots for one in flight, and the timestamp of another: what lands late does not take back what the later brought.
    #[test]
    fn fetches_land_in_any_order() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(40));
        let early = begun(&mut t, 5, 6);
        let values = read(&r, &early);
        r.publish(p(41));
        assert_eq!(t.check(p(40), p(5), &[Touch::Table(1)]), Check::Missing);
        let late = next(&mut t, 8).expect("slots are missing");
        assert_eq!(ask(&mut t, 8), Ask::Joined);
        land(&mut t, &r, &late);
        assert_eq!(t.landed(early.number, &values, 3), Ok(p(40)));
        assert_eq!(ask(&mut t, 5), Ask::Known(p(41)));
    }

    #[test]
    fn hundreds_of_reads_share_one_round_trip() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(40));
        let first = begun(&mut t, 10, 10);
        // Who arrived by then goes with it; who comes while it is under way goes with the second, whatever their number.
        for read in 0..500 {
            assert_eq!(ask(&mut t, read % 11), Ask::Joined, "{read}");
        }
        assert_eq!(ask(&mut t, 11), Ask::First);
        for read in 0..500 {
            assert_eq!(ask(&mut t, 11 + read), Ask::Joined, "{read}");
        }
        assert_eq!(next(&mut t, 600), None, "one is in flight");
        land(&mut t, &r, &first);
        let second = next(&mut t, 1001).expect("for all who wait for a place");
        for read in 0..500 {
            assert_eq!(ask(&mut t, read % 11), Ask::Known(p(40)), "{read}");
            assert_eq!(ask(&mut t, 11 + read), Ask::Joined, "{read}");
        }
        // 1,002 reads have their timestamps from two fetches, and nobody waits for a third.
        land(&mut t, &r, &second);
        assert_eq!(ask(&mut t, 510), Ask::Known(p(40)));
        assert_eq!(next(&mut t, 1002), None);
    }

    #[test]
    fn nobody_shares_a_fetch_of_ones_own() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(40));
        let numbers: Vec<_> = (0..5).map(|_| t.ask_alone()).collect();
        let all = t.begin(10);
        assert_eq!(all.len(), 5);
        let shared = begun(&mut t, 1, 11);
        assert_eq!(t.take_alone(numbers[0]), None);
        all.iter().for_each(|f| land(&mut t, &r, f));
        assert_eq!(ask(&mut t, 1), Ask::Joined);
        assert_eq!(t.take_alone(numbers[0]), Some(Ok(p(40))));
        assert_eq!(t.take_alone(numbers[0]), Some(Err(())));
        t.lost();
        assert_eq!(t.take_alone(numbers[1]), Some(Err(())));
        assert_eq!(t.landed(shared.number, &[], 3), Err(Rejected::Unknown));
    }

    /// The primary is away: reads come, give up, and others come. Nothing of them stays.
    #[test]
    fn who_waits_in_vain_leaves_nothing() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(40));
        for n in 0..100_000 {
            let row = |key: u64| Touch::Row(2, row_hash(2, &key.to_be_bytes()));
            t.ask(n, || (0..3).map(|k| row(3 * n + k)).collect());
            assert_eq!(t.check(p(9), p(5), &[row(n)]), Check::Missing);
            let number = t.ask_alone();
            t.forget(number);
        }
        assert!(t.wanted.len() <= MOST_WANTED && t.alone.is_empty() && t.waiting.is_empty());
        let all = t.begin(100_000);
        assert_eq!(all.len(), 1, "one fetch for all of them");
        assert_eq!(all[0].words.len(), MOST_WORDS);
        // One that is given up when its fetch is on its way.
        let number = t.ask_alone();
        let alone = next(&mut t, 100_001).expect("its own");
        t.forget(number);
        land(&mut t, &r, &alone);
        assert!(t.alone.is_empty());
        assert_eq!(t.take_alone(number), Some(Err(())));
    }

    #[test]
    fn answers_of_others_and_of_other_terms_are_rejected() {
        let mut t = Timestamps::new(CLUSTER);
        let mut rejected = |r: &Region, followed| {
            let f = begun(&mut t, 50, 50);
            t.landed(f.number, &read(r, &f), followed).unwrap_err()
        };
        let r = primary(40);
        let term = |theirs, followed| Rejected::Term { theirs, followed };
        assert_eq!(rejected(&r, 4), term(3, 4));
        assert_eq!(rejected(&r, 2), term(3, 2));
        r.resign();
        assert_eq!(rejected(&r, 3), Rejected::NotPrimary);
        let other = Region::default();
        other.lead(7, 3, p(1), p(1));
        assert_eq!(rejected(&other, 3), Rejected::Cluster(7));
        // It ceased to be the primary while the words were read.
        let f = begun(&mut t, 50, 50);
        let mut values = read(&primary(40), &f);
        *values.last_mut().unwrap() = 0;
        assert_eq!(t.landed(f.number, &values, 3), Err(Rejected::NotPrimary));
        let number = t.ask_alone();
        let f = next(&mut t, 50).expect("its own");
        assert_eq!(t.landed(f.number, &[3], 3), Err(Rejected::Malformed));
        assert_eq!(t.take_alone(number), Some(Err(())));
        assert_eq!(ask(&mut t, 50), Ask::First);
    }

    /// The fetch for slots that are missing.
    fn fetched(t: &mut Timestamps, at: u64, visible: u64, touches: &[Touch]) -> Fetch {
        assert_eq!(t.check(p(at), p(visible), touches), Check::Missing);
        next(t, 3).expect("slots are missing")
    }

    #[test]
    fn what_has_not_changed_is_read_at_once_and_what_has_is_waited_for() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(1));
        write(&r, 10, 1, b"a");
        write(&r, 20, 2, b"b");
        write(&r, 30, 2, b"c");
        let at = p(30);
        let first = begun(&mut t, 1, 2);
        land(&mut t, &r, &first);
        let row = |key: &[u8]| Touch::Row(2, row_hash(2, key));
        assert_eq!(t.check(at, at, &[Touch::All]), Check::Read(Level::Visible));
        assert_eq!(
            t.check(at, p(10), &[Touch::All]),
            Check::Wait(at, Level::Visible)
        );
        // All slots in one fetch.
        let touches = [Touch::Catalog, Touch::Table(1), row(b"b"), row(b"x")];
        let f = fetched(&mut t, 30, 10, &touches);
        land(&mut t, &r, &f);
        let mut check = |v, touches: &[Touch]| t.check(at, p(v), touches);
        assert_eq!(check(10, &touches[..2]), Check::Read(Level::Table));
        assert_eq!(
            check(9, &[Touch::Table(1)]),
            Check::Wait(p(10), Level::Table)
        );
        // A row that was modified, and one that was not, of a table that was.
        assert_eq!(check(10, &touches), Check::Wait(p(20), Level::Row));
        assert_eq!(check(10, &[row(b"x")]), Check::Read(Level::Row));
        assert_eq!(check(20, &touches), Check::Read(Level::Row));
        assert_eq!(
            check(10, &[Touch::Table(2)]),
            Check::Wait(p(30), Level::Table)
        );
    }

    #[test]
    fn a_slot_is_waited_for_no_further_than_the_timestamp() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(1));
        write(&r, 10, 1, b"a");
        let first = begun(&mut t, 1, 2);
        land(&mut t, &r, &first);
        // Written since, and hiding what was before.
        write(&r, 50, 1, b"a");
        let f = fetched(&mut t, 10, 5, &[Touch::Table(1)]);
        land(&mut t, &r, &f);
        let c = t.check(p(10), p(5), &[Touch::Table(1)]);
        assert_eq!(c, Check::Wait(p(10), Level::Table));
    }

    #[test]
    fn a_slot_fetched_before_the_timestamp_was_published_is_of_no_use() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(1));
        write(&r, 10, 1, b"a");
        let first = begun(&mut t, 1, 2);
        land(&mut t, &r, &first);
        let f = fetched(&mut t, 10, 5, &[Touch::Table(2)]);
        land(&mut t, &r, &f);
        let c = t.check(p(10), p(5), &[Touch::Table(2)]);
        assert_eq!(c, Check::Read(Level::Table));
        write(&r, 20, 2, b"b");
        // The next timestamp brings the slots of tables that were asked for with it.
        let second = begun(&mut t, 5, 6);
        assert!(second.words.contains(&table_slot(2)));
        let c = t.check(p(20), p(15), &[Touch::Table(2)]);
        assert_eq!((c, next(&mut t, 7)), (Check::Missing, None));
        land(&mut t, &r, &second);
        let c = t.check(p(20), p(15), &[Touch::Table(2)]);
        assert_eq!(c, Check::Wait(p(20), Level::Table));
        // A primary of another term may have counted from elsewhere.
        r.lead(CLUSTER, 4, p(20), p(20));
        let f = begun(&mut t, 8, 9);
        t.landed(f.number, &read(&r, &f), 4).unwrap();
        assert!(t.known.values().all(|k| k.1 == p(20)));
    }

    #[test]
    fn a_timestamp_of_another_history_is_not_given_out() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(90));
        let early = begun(&mut t, 1, 2);
        assert_eq!(t.check(p(9), p(5), &[Touch::Table(2)]), Check::Missing);
        let late = next(&mut t, 4).expect("slots are missing");
        land(&mut t, &r, &late);
        assert_eq!(ask(&mut t, 1), Ask::Known(p(90)));
        // Promoted behind 50: nobody has 90, perhaps never.
        let r = Region::default();
        r.lead(CLUSTER, 4, p(50), p(50));
        t.landed(early.number, &read(&r, &early), 4).unwrap();
        assert_eq!(ask(&mut t, 1), Ask::Known(p(50)));
    }

    #[test]
    fn what_was_wanted_when_a_connection_ended_is_asked_for_again() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(10));
        let first = begun(&mut t, 1, 2);
        assert_eq!(ask(&mut t, 5), Ask::First);
        t.lost();
        let again = begun(&mut t, 5, 7);
        assert_eq!(ask(&mut t, 1), Ask::Joined);
        let took = t.landed(first.number, &read(&r, &first), 3);
        assert_eq!(took, Err(Rejected::Unknown));
        land(&mut t, &r, &again);
        assert_eq!(ask(&mut t, 5), Ask::Known(p(10)));
    }
}
