//! Escrow: how far the deltas of running transactions may still move a value (O'Neil, TODS 1986).
//!
//! A transaction that subtracts 3 from a value *reserves* 3 below it until it has ended. So whatever becomes of the transactions that run,
//! the value stays between its bounds:
//!
//! ```text
//! lower <= newest - Σ down          newest + Σ up <= upper              Σ over the reservations of all transactions
//! lower + guard <= newest - Σ down of the others                        for each transaction with a guard
//! ```
//! A guard (`qty >= 5`) is a reservation, too: while it is held, no other transaction takes the value below 5. Guards do not add up: what is left
//! for one is left for all.
//!
//! | asked for | answer |
//! |---|---|
//! | it fits beside all reservations | [`Answer::Granted`] |
//! | it would fit if others gave theirs back | [`Answer::Busy`]: only the end of the others decides, so the caller waits for it with a lock |
//! | it does not fit even alone | [`Answer::Short`]: too little in truth, at this moment |
//!
//! **Why a grant is never too much.** The newest value is read under the shard's lock. A subtraction that is not in it yet is still reserved,
//! because a transaction gives its reservation back after it has pushed its version, and under the same lock. A subtraction that is in it
//! and still reserved counts twice, which can only refuse: the answer is Busy then, and never Short, since Short looks at the newest value alone.
//!
//! [`Reserved`] decides and knows neither the lock nor the store; [`Escrow`] is the table of them.
//!
//! Where a value has further records, its newest value is the sum of their newest shares, read one after the other under the shard's lock. The
//! argument is the same for each share.
//!
//! Left out on purpose: queues, which are those of the row lock.

use base::RelId;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Names a value: a column of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ValueName {
    pub storage: RelId,
    pub column: u16,
    pub key: Box<[u8]>,
}

/// What one transaction reserves of a value, in units; neither is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    /// How far below the newest value it may go.
    pub down: i128,
    /// How far above.
    pub up: i128,
    /// How much the others have to leave of the newest value above its lower bound.
    pub guard: i128,
}

impl Hold {
    pub(crate) const NONE: Hold = Hold {
        down: 0,
        up: 0,
        guard: 0,
    };

    /// The least hold that covers both.
    pub(crate) fn max(self, other: Hold) -> Hold {
        Hold {
            down: self.down.max(other.down),
            up: self.up.max(other.up),
            guard: self.guard.max(other.guard),
        }
    }

    /// What its guard demands beyond what it may take itself.
    fn excess(self) -> i128 {
        (self.guard - self.down).max(0)
    }

    /// What a transaction has to hold when its deltas come to `net`.
    pub(crate) fn of(net: i128) -> Hold {
        Hold {
            down: (-net).max(0),
            up: net.max(0),
            guard: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted,
    Busy,
    Short,
}

/// The reservations of one value, summed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserved {
    /// Without guards.
    sum: Hold,
    /// The excess of each guard that has one, the least first.
    excess: Vec<i128>,
}

impl Reserved {
    /// Whether the transaction that holds `mine` may hold `want` (at least as much) of a value that is `newest` and stays in `lower..=upper`.
    pub(crate) fn ask(
        &self,
        newest: i128,
        (lower, upper): (i128, i128),
        mine: Hold,
        want: Hold,
    ) -> Answer {
        let (below, above) = (newest - lower, upper - newest);
        if want.down.max(want.guard) > below || want.up > above {
            return Answer::Short;
        }
        let (down, up) = (self.sum.down - mine.down, self.sum.up - mine.up);
        let left = below - down;
        let fits = want.guard <= left && self.greatest_beside(mine.excess()) <= left - want.down;
        match fits && want.up <= above - up {
            true => Answer::Granted,
            false => Answer::Busy,
        }
    }

    /// The greatest excess of the guards of others; `mine` is one of those here, or 0.
    fn greatest_beside(&self, mine: i128) -> i128 {
        let mut greatest = self.excess.iter().rev();
        match (greatest.next(), greatest.next()) {
            (Some(first), second) if *first == mine => second.copied().unwrap_or(0),
            (first, _) => first.copied().unwrap_or(0),
        }
    }

    /// A transaction holds `to` instead of `from`.
    pub(crate) fn change(&mut self, from: Hold, to: Hold) {
        self.sum.down += to.down - from.down;
        self.sum.up += to.up - from.up;
        let (had, has) = (from.excess(), to.excess());
        if had > 0 {
            let at = self.excess.binary_search(&had);
            self.excess.remove(at.expect("the guard is held"));
        }
        if has > 0 {
            let at = self.excess.partition_point(|e| *e < has);
            self.excess.insert(at, has);
        }
        assert!(
            self.sum.down >= 0 && self.sum.up >= 0,
            "more is given back than was reserved"
        );
    }

    fn is_none(&self) -> bool {
        self.sum == Hold::NONE && self.excess.is_empty()
    }

    /// How far the value may still go, and how far it may not because of a guard.
    fn shown(&self) -> Hold {
        Hold {
            down: self.sum.down + self.greatest_beside(0),
            ..self.sum
        }
    }
}

const SHARDS: usize = 64;

/// Most values of a shard whose heat is known. Others wait until a worker has looked.
const MOST_WATCHED: usize = 1 << 12;

type Map<T> = HashMap<ValueName, T, foldhash::fast::FixedState>;

#[derive(Default)]
struct Shard {
    reserved: Map<Reserved>,
    heat: Map<Heat>,
}

/// How a value is used, since a worker looked last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heat {
    /// Deltas of it.
    pub deltas: u64,
    /// How many of the commits had to wait for its record.
    pub waits: u64,
    /// The share of such commits in the time before.
    pub rate: f64,
}

impl Heat {
    /// The share of commits that waited, since the last look.
    pub fn rate_now(&self) -> f64 {
        self.waits as f64 / self.deltas.max(self.waits).max(1) as f64
    }
}

/// The reservations of all running transactions of a node. A value without any takes no room.
pub(crate) struct Escrow {
    shards: Vec<Mutex<Shard>>,
}

impl Default for Escrow {
    fn default() -> Self {
        Escrow {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
}

impl Escrow {
    fn shard(&self, name: &ValueName) -> &Mutex<Shard> {
        let hash = base::key::hash(name.storage, &name.key);
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    /// Asks for `want`; granted, the transaction holds `keep` from here on. `newest` reads the value, under the lock.
    pub(crate) fn reserve(
        &self,
        name: &ValueName,
        newest: impl FnOnce() -> Option<i128>,
        bounds: (i128, i128),
        (mine, want, keep): (Hold, Hold, Hold),
        watched: bool,
    ) -> Option<(Answer, i128, Hold)> {
        let mut shard = self.shard(name).lock();
        let newest = newest()?;
        if watched && shard.heat.len() < MOST_WATCHED && !shard.heat.contains_key(name) {
            shard.heat.insert(name.clone(), Heat::default());
        }
        if !shard.heat.is_empty()
            && let Some(heat) = shard.heat.get_mut(name)
        {
            heat.deltas += 1;
        }
        let none = Reserved::default();
        let reserved = shard.reserved.get(name).unwrap_or(&none);
        let sum = reserved.sum;
        if env::fault::planted("split.no_escrow") {
            return Some((Answer::Granted, newest, sum));
        }
        let answer = reserved.ask(newest, bounds, mine, want);
        if answer == Answer::Granted && mine != keep {
            let reserved = shard.reserved.entry(name.clone()).or_default();
            reserved.change(mine, keep);
        }
        Some((answer, newest, sum))
    }

    /// The transaction holds nothing of the value any more. After its version is pushed, or when it is rolled back.
    pub(crate) fn give_back(&self, name: &ValueName, held: Hold) {
        self.reduce(name, held, Hold::NONE);
    }

    /// The transaction holds `keep` of what it held: a statement is undone.
    pub(crate) fn reduce(&self, name: &ValueName, held: Hold, keep: Hold) {
        if held == keep || env::fault::planted("split.no_escrow") {
            return;
        }
        let mut shard = self.shard(name).lock();
        let reserved = shard.reserved.get_mut(name).expect("it was reserved");
        reserved.change(held, keep);
        if reserved.is_none() {
            shard.reserved.remove(name);
        }
    }

    /// There was a delta of the value in the mode that reserves nothing. `watched`: its heat is known from here on.
    pub(crate) fn used(&self, name: &ValueName, watched: bool) {
        let mut shard = self.shard(name).lock();
        if watched && shard.heat.len() < MOST_WATCHED && !shard.heat.contains_key(name) {
            shard.heat.insert(name.clone(), Heat::default());
        }
        if let Some(heat) = shard.heat.get_mut(name) {
            heat.deltas += 1;
        }
    }

    /// A commit had to wait for a record of the value.
    pub(crate) fn waited(&self, name: ValueName) {
        let mut shard = self.shard(&name).lock();
        if shard.heat.len() < MOST_WATCHED || shard.heat.contains_key(&name) {
            shard.heat.entry(name).or_default().waits += 1;
        }
    }

    /// How the values were used since the last look, which this is. Values without a delta are forgotten.
    pub(crate) fn look(&self) -> Vec<(ValueName, Heat)> {
        let mut seen = vec![];
        for shard in &self.shards {
            shard.lock().heat.retain(|name, heat| {
                if heat.deltas == 0 && heat.waits == 0 {
                    return false;
                }
                seen.push((name.clone(), *heat));
                *heat = Heat {
                    rate: heat.rate_now(),
                    ..Heat::default()
                };
                true
            });
        }
        seen
    }

    /// What is reserved of a value, and its heat.
    pub(crate) fn of(&self, name: &ValueName) -> (Hold, Heat) {
        let shard = self.shard(name).lock();
        let reserved = shard.reserved.get(name).map(Reserved::shown);
        (
            reserved.unwrap_or_default(),
            shard.heat.get(name).copied().unwrap_or_default(),
        )
    }

    /// The values that are watched.
    pub(crate) fn watched(&self) -> Vec<ValueName> {
        let names = |s: &Mutex<Shard>| s.lock().heat.keys().cloned().collect::<Vec<_>>();
        self.shards.iter().flat_map(names).collect()
    }

    /// The watched values that were fought for most, and how many are watched. The values whose commits waited most often come first, and among
    /// equals those with the most deltas.
    pub(crate) fn hottest(&self, most: usize) -> (Vec<(ValueName, Heat)>, usize) {
        let rank = |h: &Heat| ((h.rate_now().max(h.rate) * 1e6) as u64, h.deltas);
        let (mut top, mut watched): (Vec<(ValueName, Heat)>, usize) = (vec![], 0);
        for shard in &self.shards {
            let shard = shard.lock();
            watched += shard.heat.len();
            let least = top.last().filter(|_| top.len() == most).map(|l| rank(&l.1));
            let better = |h: &Heat| least.is_none_or(|l| rank(h) > l);
            let some = shard.heat.iter().filter(|(_, h)| better(h));
            top.extend(some.map(|(name, heat)| (name.clone(), *heat)));
            top.sort_by_key(|t| std::cmp::Reverse(rank(&t.1)));
            top.truncate(most);
        }
        (top, watched)
    }

    /// How many values something is reserved of.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().reserved.len()).sum()
    }

    /// The values of which something is reserved: name, below, above.
    pub(crate) fn all(&self) -> Vec<(ValueName, Hold)> {
        let shards = self.shards.iter().map(|s| s.lock());
        let all = shards.flat_map(|s| {
            let all = s.reserved.iter().map(|(n, r)| (n.clone(), r.shown()));
            all.collect::<Vec<_>>()
        });
        all.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::rng::Rng;

    /// Random histories of the decider against all that could become of the running transactions: any subset commits, in any order. Because
    /// nets add up, the worst are all that subtract, and all that add.
    #[test]
    fn whatever_becomes_of_the_transactions_the_value_stays_in_its_bounds() {
        for seed in 0..3_000 {
            let mut rng = Rng::new(seed);
            let bounds = (0, i128::from(rng.between(5, 40)));
            let mut newest = i128::from(rng.between(0, bounds.1 as i64));
            let mut reserved = Reserved::default();
            // Net and hold of each running transaction, and whether it keeps its guards.
            let mut open: Vec<(i128, Hold, bool)> = vec![];
            let mut granted = 0;
            for _ in 0..60 {
                if open.len() < 5 {
                    open.push((0, Hold::NONE, rng.below(2) == 0));
                }
                let i = rng.below(open.len() as u64) as usize;
                let (net, held, keeps) = open[i];
                match rng.below(5) {
                    // A delta, maybe behind a guard.
                    0..=2 => {
                        let amount = i128::from(rng.between(-6, 6));
                        let need = (rng.below(3) == 0).then(|| i128::from(rng.between(0, 10)));
                        let guard = need.map_or(0, |n| (n - bounds.0 - net).max(0));
                        let after = Hold::of(net + amount);
                        let want = held.max(after).max(Hold {
                            guard,
                            ..Hold::NONE
                        });
                        let keep = if keeps { want } else { held.max(after) };
                        match reserved.ask(newest, bounds, held, want) {
                            Answer::Granted => {
                                granted += 1;
                                assert!(
                                    need.is_none_or(|n| newest + net >= n),
                                    "the guard holds now"
                                );
                                reserved.change(held, keep);
                                open[i] = (net + amount, keep, keeps);
                            }
                            // No answer but that of the others' ends: alone it would fit.
                            Answer::Busy => {
                                let mut alone = Reserved::default();
                                alone.change(Hold::NONE, held);
                                assert_eq!(alone.ask(newest, bounds, held, want), Answer::Granted);
                            }
                            Answer::Short => {
                                let enough = need.is_none_or(|n| newest + net >= n);
                                let result = newest + net + amount;
                                let fits = result >= bounds.0 && result <= bounds.1;
                                // What it held before is no reason.
                                let held_fits = held.down.max(held.guard) <= newest - bounds.0
                                    && held.up <= bounds.1 - newest;
                                assert!(
                                    !enough || !fits || !held_fits,
                                    "seed {seed}: refused though there is enough"
                                );
                            }
                        }
                    }
                    // It commits: pushed first, given back later.
                    3 => {
                        let (net, held, _) = open.swap_remove(i);
                        assert!(
                            newest - bounds.0 >= held.guard,
                            "seed {seed}: a guard that was kept does not hold"
                        );
                        newest += net;
                        assert!(
                            bounds.0 <= newest && newest <= bounds.1,
                            "seed {seed}: {newest}"
                        );
                        reserved.change(held, Hold::NONE);
                    }
                    _ => {
                        let (_, held, _) = open.swap_remove(i);
                        reserved.change(held, Hold::NONE);
                    }
                }
                let down: i128 = open.iter().map(|o| o.0.min(0)).sum();
                let up: i128 = open.iter().map(|o| o.0.max(0)).sum();
                assert!(newest + down >= bounds.0, "seed {seed}: too much is sold");
                assert!(newest + up <= bounds.1, "seed {seed}: too much is added");
            }
            assert!(granted > 0, "seed {seed}: nothing was granted");
        }
    }

    #[test]
    fn what_nobody_holds_takes_no_room() {
        let escrow = Escrow::default();
        let name = ValueName {
            storage: 7,
            column: 1,
            key: (*b"k").into(),
        };
        let down = |down| Hold { down, ..Hold::NONE };
        let want = down(3);
        let ask = |want| {
            let asked =
                escrow.reserve(&name, || Some(5), (0, 100), (Hold::NONE, want, want), false);
            asked.map(|a| (a.0, a.1))
        };
        assert_eq!(ask(want), Some((Answer::Granted, 5)));
        assert_eq!(ask(want), Some((Answer::Busy, 5)));
        assert_eq!(ask(down(6)), Some((Answer::Short, 5)));
        assert_eq!(escrow.all(), [(name.clone(), want)]);
        escrow.give_back(&name, want);
        assert_eq!(escrow.all(), []);
    }
}
