//! Random list-append transactions.
//!
//! Conflicts need few keys, and short lists need many: so the keys in use are a window that
//! slides. A key leaves the window after [`Shape::appends_per_key`] appends and the next fresh one
//! takes its place. Values count up per generator, in a space of their own, so that every value
//! is unique over all clients of a run.

use super::history::{Key, Value};
use crate::rng::Rng;

/// One operation to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    Append(Key, Value),
    Read(Key),
    /// Both ends included.
    ReadRange(Key, Key),
}

/// What transactions look like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Keys in use at one time.
    pub window: u64,
    /// Appends after which a key is retired.
    pub appends_per_key: u64,
    /// Operations per transaction: one to this many.
    pub longest: u64,
    /// Percentage of operations that append; of the others, a fourth reads a range.
    pub appends: u64,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            window: 6,
            appends_per_key: 24,
            longest: 5,
            appends: 50,
        }
    }
}

/// All transactions of one run, for any number of clients; share it behind a lock.
#[derive(Debug)]
pub struct Generator {
    shape: Shape,
    rng: Rng,
    /// Key and number of appends handed out for it.
    window: Vec<(Key, u64)>,
    next_key: Key,
    next_value: Value,
}

impl Generator {
    pub fn new(seed: u64, shape: Shape) -> Generator {
        assert!(shape.window > 0 && shape.longest > 0 && shape.appends_per_key > 0);
        Generator {
            shape,
            rng: Rng::new(seed),
            window: (0..shape.window).map(|key| (key, 0)).collect(),
            next_key: shape.window,
            next_value: 1,
        }
    }

    /// The next transaction: at least one operation, appends to any key more than once allowed.
    pub fn next_txn(&mut self) -> Vec<Plan> {
        let len = 1 + self.rng.below(self.shape.longest);
        (0..len).map(|_| self.next_op()).collect()
    }

    /// Keys that were ever in use: `0..keys()`. Read them all at the end of a run.
    pub fn keys(&self) -> u64 {
        self.next_key
    }

    fn next_op(&mut self) -> Plan {
        let at = self.rng.below(self.window.len() as u64) as usize;
        let key = self.window[at].0;
        if self.rng.percent(self.shape.appends) {
            let value = self.next_value;
            self.next_value += 1;
            self.window[at].1 += 1;
            if self.window[at].1 == self.shape.appends_per_key {
                self.window[at] = (self.next_key, 0);
                self.next_key += 1;
            }
            Plan::Append(key, value)
        } else if self.rng.percent(25) {
            Plan::ReadRange(key, key + 1 + self.rng.below(3))
        } else {
            Plan::Read(key)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn values_are_unique_keys_are_retired_and_all_kinds_occur() {
        let mut generator = Generator::new(9, Shape::default());
        let (mut values, mut per_key) = (HashSet::new(), HashMap::<u64, u64>::new());
        let (mut reads, mut ranges) = (0, 0);
        for _ in 0..2000 {
            for op in generator.next_txn() {
                match op {
                    Plan::Append(key, value) => {
                        assert!(values.insert(value));
                        assert!(key < generator.keys());
                        *per_key.entry(key).or_default() += 1;
                    }
                    Plan::Read(_) => reads += 1,
                    Plan::ReadRange(low, high) => {
                        assert!(low < high);
                        ranges += 1;
                    }
                }
            }
        }
        assert!(per_key.values().all(|&n| n <= 24));
        assert!(per_key.len() > 50 && reads > 500 && ranges > 100);
    }
}
