//! Linear Lamport timestamps (SCC §4.1) and the check of what is read against the primary's slots (§4.2), without clock or socket.
//!
//! ```text
//! local time ──────▶   a1   began          a2        landed: published = t, slots
//!                      │     ├──────── fetch 1 ────────┤
//! a read that arrived at a1 takes t: the fetch began later. One of a2 may not: it needs a fetch that begins after a2.
//! ```
//! **A timestamp** for a read that arrived at `a` is *published* of the primary from a fetch that began at `a` or later, whoever began it.
//! Whoever finds none that has landed joins one in flight, or begins one, or (two are in flight) waits for the next; so any number of
//! reads cost at most two fetches per round trip.
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
//! Left out on purpose: when to give up (the session's), and a bound on who waits (sessions have one).

use base::region::{
    CATALOG_WORD, CLUSTER_WORDS, GLOBAL_WORD, PUBLISHED_WORD, TERM_WORD, bucket_slot, table_slot,
};
use base::{Position, RelId};
use std::collections::{BTreeSet, HashMap};

use super::memory::MOST_WORDS;

/// Fetches in flight, those of reads that want their own aside.
const FLIGHTS: usize = 2;
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
    /// A fetch that began later is in flight: ask again when it has landed.
    Joined,
    /// Send this, and ask again when it has landed.
    Begin(Fetch),
    /// The fetch begins when another has landed.
    Queued,
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
    /// Slots are missing: check again when a fetch has landed. This is to be sent, if there is something.
    Missing(Option<Fetch>),
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
    /// Landed, for one read each.
    alone: HashMap<u64, Position>,
    /// Somebody waits for a fetch that has not begun.
    again: bool,
    wanted: BTreeSet<u32>,
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
            again: false,
            wanted: BTreeSet::new(),
            known: HashMap::new(),
            hot: HashMap::new(),
        }
    }

    /// What there is already for a read that arrived at this time: known, or in flight. Times are of any clock that does not go back.
    pub fn find(&self, arrived: u64) -> Option<Ask> {
        let fresh = |began: u64| began >= arrived || env::fault::planted("read.old_fetch");
        if let Some((_, at)) = self.last.filter(|l| fresh(l.0)) {
            return Some(Ask::Known(at));
        }
        let joins = |f: &Flight| !f.alone && f.began >= arrived;
        self.flights.iter().any(joins).then_some(Ask::Joined)
    }

    /// A timestamp for a read that arrived at this time.
    pub fn ask(&mut self, arrived: u64, now: u64) -> Ask {
        if let Some(found) = self.find(arrived) {
            return found;
        }
        match self.begin(now) {
            Some(fetch) => Ask::Begin(fetch),
            None => {
                self.again = true;
                Ask::Queued
            }
        }
    }

    /// The next fetch brings the slots of these, too: its reads need no second one.
    pub fn want(&mut self, touches: &[Touch]) {
        for touch in touches {
            if let Touch::Table(t) | Touch::Row(t, _) = *touch {
                self.wanted.insert(table_slot(t));
            }
            if let Touch::Row(_, hash) = *touch {
                self.wanted.insert(bucket_slot(hash));
            }
        }
    }

    /// Fetches in flight that reads share.
    pub fn flying(&self) -> usize {
        self.flights.iter().filter(|f| !f.alone).count()
    }

    /// A fetch for one read and no other; [`Timestamps::take_alone`] has what it brought.
    pub fn fetch_alone(&mut self, now: u64) -> Fetch {
        self.launch(now, true)
    }

    /// What a fetch for one read brought; `Err`: it was lost. None: it is in flight.
    pub fn take_alone(&mut self, number: u64) -> Option<Result<Position, ()>> {
        if let Some(at) = self.alone.remove(&number) {
            return Some(Ok(at));
        }
        let flies = self.flights.iter().any(|f| f.number == number);
        (!flies).then_some(Err(()))
    }

    /// Whether what is touched may be read at `at`, where everything up to `visible` is here. Call it with a look at *visible* that is
    /// not newer than the call.
    pub fn check(&mut self, at: Position, visible: Position, touches: &[Touch], now: u64) -> Check {
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
                self.wanted.extend(missing);
                Check::Missing(self.begin_wanted(now))
            }
        }
    }

    /// The answer to a fetch came: these values, while the node follows `followed`. *Published* in it, and what is to be sent next. Wake
    /// all who wait, whatever it says.
    pub fn landed(
        &mut self,
        number: u64,
        values: &[u64],
        followed: u64,
        now: u64,
    ) -> (Result<Position, Rejected>, Option<Fetch>) {
        let Some(i) = self.flights.iter().position(|f| f.number == number) else {
            return (Err(Rejected::Unknown), None);
        };
        let flight = self.flights.remove(i);
        let took = self.take(&flight, values, followed);
        let next = match took {
            // Who waits asks again when the caller has waited a little.
            Err(_) => None,
            Ok(_) if self.again || !self.wanted.is_empty() => self.begin(now),
            Ok(_) => None,
        };
        (took, next)
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
        if f.alone {
            self.alone.insert(f.number, at);
        } else if self.last.is_none_or(|l| l.0 <= f.began) {
            self.last = Some((f.began, at));
        }
        Ok(at)
    }

    /// The connection ended, or begins: nothing that is in flight lands. Wake all who wait.
    pub fn lost(&mut self) {
        self.flights.clear();
        self.alone.clear();
        self.wanted.clear();
        self.again = false;
    }

    fn slot(&self, word: u32, at: Position) -> Option<Position> {
        let (value, as_of) = self.known.get(&word)?;
        (*as_of >= at).then_some(*value)
    }

    /// A fetch with what is wanted, unless one in flight brings it or there are enough in flight.
    fn begin_wanted(&mut self, now: u64) -> Option<Fetch> {
        let brought = |w: &u32| self.flights.iter().any(|f| f.words.contains(w));
        if self.wanted.iter().all(brought) {
            self.wanted.clear();
            return None;
        }
        self.begin(now)
    }

    fn begin(&mut self, now: u64) -> Option<Fetch> {
        if self.flying() >= FLIGHTS {
            return None;
        }
        self.again = false;
        Some(self.launch(now, false))
    }

    fn launch(&mut self, began: u64, alone: bool) -> Fetch {
        self.number += 1;
        let number = self.number;
        let mut words = HEAD.to_vec();
        if !alone {
            self.hot.retain(|_, until| *until > number);
            self.wanted.extend(self.hot.keys());
            let slots = std::mem::take(&mut self.wanted);
            let known = |w: &u32| !HEAD.contains(w);
            let mut slots = slots.into_iter().filter(known);
            words.extend(slots.by_ref().take(MOST_WORDS - HEAD.len() - 1));
            self.wanted = slots.collect();
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

    fn land(t: &mut Timestamps, r: &Region, f: &Fetch) -> Option<Fetch> {
        let (took, next) = t.landed(f.number, &read(r, f), 3, 1000);
        took.unwrap();
        next
    }

    fn begun(a: Ask) -> Fetch {
        match a {
            Ask::Begin(f) => f,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_timestamp_serves_who_arrived_before_its_fetch_began() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(40));
        let first = begun(t.ask(5, 10));
        assert_eq!(t.ask(9, 11), Ask::Joined);
        assert_eq!(t.ask(10, 11), Ask::Joined);
        // It arrived after the fetch began.
        let second = begun(t.ask(11, 12));
        assert_eq!(t.ask(12, 13), Ask::Joined);
        // Two are in flight.
        assert_eq!(t.ask(13, 14), Ask::Queued);
        assert_eq!(t.ask(14, 15), Ask::Queued);
        let values = read(&r, &first);
        r.publish(p(41));
        let (took, third) = t.landed(first.number, &values, 3, 20);
        assert_eq!(took, Ok(p(40)));
        assert_eq!(t.ask(10, 21), Ask::Known(p(40)));
        assert_eq!(t.ask(12, 21), Ask::Joined);
        // All who waited for a place go with one.
        let third = third.expect("somebody waits for it");
        assert_eq!(t.ask(14, 21), Ask::Joined);
        assert!(land(&mut t, &r, &third).is_none());
        // A fetch that lands late does not take back what a later one brought.
        assert!(land(&mut t, &r, &second).is_none());
        assert_eq!(t.ask(20, 30), Ask::Known(p(41)));
        assert_eq!(
            t.landed(second.number, &[], 3, 30).0,
            Err(Rejected::Unknown)
        );
    }

    #[test]
    fn hundreds_of_reads_share_one_round_trip() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(40));
        let first = begun(t.ask(10, 10));
        // Who arrived by then goes with it; who comes while it is under way goes with the second, whatever their number.
        for read in 0..500 {
            assert_eq!(t.ask(read % 11, 11), Ask::Joined, "{read}");
        }
        let second = begun(t.ask(11, 12));
        for read in 0..500 {
            assert_eq!(t.ask(11 + read % 2, 13), Ask::Joined, "{read}");
        }
        for read in 0..500 {
            assert_eq!(t.ask(13 + read, 600), Ask::Queued, "{read}");
        }
        let third = land(&mut t, &r, &first).expect("for all who wait for a place");
        for read in 0..500 {
            assert_eq!(t.ask(read % 11, 1001), Ask::Known(p(40)), "{read}");
            assert_eq!(t.ask(13 + read, 1001), Ask::Joined, "{read}");
        }
        // 1,502 reads have their timestamps from three fetches, and nobody waits for a fourth.
        assert!(land(&mut t, &r, &second).is_none());
        assert!(land(&mut t, &r, &third).is_none());
        assert_eq!(t.ask(512, 1002), Ask::Known(p(40)));
    }

    #[test]
    fn nobody_shares_a_fetch_of_ones_own() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(40));
        let all: Vec<_> = (0..5).map(|_| t.fetch_alone(10)).collect();
        let shared = begun(t.ask(1, 11));
        assert_eq!(t.take_alone(all[0].number), None);
        all.iter()
            .for_each(|f| assert!(land(&mut t, &r, f).is_none()));
        assert_eq!(t.ask(1, 12), Ask::Joined);
        assert_eq!(t.take_alone(all[0].number), Some(Ok(p(40))));
        assert_eq!(t.take_alone(all[0].number), Some(Err(())));
        t.lost();
        assert_eq!(t.take_alone(all[1].number), Some(Err(())));
        assert_eq!(
            t.landed(shared.number, &[], 3, 12).0,
            Err(Rejected::Unknown)
        );
    }

    #[test]
    fn answers_of_others_and_of_other_terms_are_rejected() {
        let mut t = Timestamps::new(CLUSTER);
        let mut rejected = |r: &Region, followed| {
            let f = begun(t.ask(50, 50));
            let (took, next) = t.landed(f.number, &read(r, &f), followed, 60);
            assert_eq!(next, None);
            took.unwrap_err()
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
        let f = begun(t.ask(50, 50));
        let mut values = read(&primary(40), &f);
        *values.last_mut().unwrap() = 0;
        assert_eq!(
            t.landed(f.number, &values, 3, 60).0,
            Err(Rejected::NotPrimary)
        );
        let f = begun(t.ask(50, 50));
        assert_eq!(t.landed(f.number, &[3], 3, 60).0, Err(Rejected::Malformed));
        assert!(matches!(t.ask(50, 60), Ask::Begin(_)));
    }

    fn fetched(c: Check) -> Fetch {
        match c {
            Check::Missing(Some(f)) => f,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_has_not_changed_is_read_at_once_and_what_has_is_waited_for() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(1));
        write(&r, 10, 1, b"a");
        write(&r, 20, 2, b"b");
        write(&r, 30, 2, b"c");
        let at = p(30);
        let first = begun(t.ask(1, 2));
        land(&mut t, &r, &first);
        let row = |key: &[u8]| Touch::Row(2, row_hash(2, key));
        assert_eq!(
            t.check(at, at, &[Touch::All], 3),
            Check::Read(Level::Visible)
        );
        assert_eq!(
            t.check(at, p(10), &[Touch::All], 3),
            Check::Wait(at, Level::Visible)
        );
        // All slots in one fetch.
        let touches = [Touch::Catalog, Touch::Table(1), row(b"b"), row(b"x")];
        let f = fetched(t.check(at, p(10), &touches, 3));
        land(&mut t, &r, &f);
        let mut check = |v, touches: &[Touch]| t.check(at, p(v), touches, 4);
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
        let first = begun(t.ask(1, 2));
        land(&mut t, &r, &first);
        // Written since, and hiding what was before.
        write(&r, 50, 1, b"a");
        let f = fetched(t.check(p(10), p(5), &[Touch::Table(1)], 3));
        land(&mut t, &r, &f);
        let c = t.check(p(10), p(5), &[Touch::Table(1)], 4);
        assert_eq!(c, Check::Wait(p(10), Level::Table));
    }

    #[test]
    fn a_slot_fetched_before_the_timestamp_was_published_is_of_no_use() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(1));
        write(&r, 10, 1, b"a");
        let first = begun(t.ask(1, 2));
        land(&mut t, &r, &first);
        let f = fetched(t.check(p(10), p(5), &[Touch::Table(2)], 3));
        land(&mut t, &r, &f);
        let c = t.check(p(10), p(5), &[Touch::Table(2)], 4);
        assert_eq!(c, Check::Read(Level::Table));
        write(&r, 20, 2, b"b");
        // The next timestamp brings the slots of tables that were asked for with it.
        let next = begun(t.ask(5, 6));
        assert!(next.words.contains(&table_slot(2)));
        assert!(matches!(
            t.check(p(20), p(15), &[Touch::Table(2)], 7),
            Check::Missing(None)
        ));
        land(&mut t, &r, &next);
        let c = t.check(p(20), p(15), &[Touch::Table(2)], 8);
        assert_eq!(c, Check::Wait(p(20), Level::Table));
        // A primary of another term may have counted from elsewhere.
        r.lead(CLUSTER, 4, p(20), p(20));
        let f = begun(t.ask(8, 9));
        t.landed(f.number, &read(&r, &f), 4, 10).0.unwrap();
        assert!(t.known.values().all(|k| k.1 == p(20)));
    }

    #[test]
    fn a_timestamp_of_another_history_is_not_given_out() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(90));
        let (early, late) = (begun(t.ask(1, 2)), begun(t.ask(3, 4)));
        land(&mut t, &r, &late);
        assert_eq!(t.ask(1, 5), Ask::Known(p(90)));
        // Promoted behind 50: nobody has 90, perhaps never.
        let r = Region::default();
        r.lead(CLUSTER, 4, p(50), p(50));
        t.landed(early.number, &read(&r, &early), 4, 6).0.unwrap();
        assert_eq!(t.ask(1, 7), Ask::Known(p(50)));
    }

    #[test]
    fn what_was_wanted_when_a_connection_ended_is_asked_for_again() {
        let (mut t, r) = (Timestamps::new(CLUSTER), primary(10));
        let (a, _b) = (begun(t.ask(1, 2)), begun(t.ask(3, 4)));
        assert_eq!(t.ask(5, 6), Ask::Queued);
        t.lost();
        let again = begun(t.ask(5, 7));
        assert_eq!(t.ask(1, 7), Ask::Joined);
        assert_eq!(
            t.landed(a.number, &read(&r, &a), 3, 8).0,
            Err(Rejected::Unknown)
        );
        land(&mut t, &r, &again);
        assert_eq!(t.ask(5, 9), Ask::Known(p(10)));
    }
}
