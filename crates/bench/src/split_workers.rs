//! How fast the worker of split values follows its load: the thesis's Figures 21 and 22, with the deciders that the product runs.
//!
//! ```text
//! a second of the load ─▶ `txn::Heat` (deltas, waits) ─▶ `Policy::records` ─▶ the records of the next second      once a second
//! what records hold    ─▶ `Balance::moves`            ─▶ what they hold then                               four times a second
//! ```
//! Time is counted and never waited for, chance has a seed: each run prints the same lines on every machine.
//!
//! **The load is a model**, the thesis's own (§4.3.3). A second has n transactions of 5 ms that change one value. Each begins at a random
//! moment of the first 995 ms, and takes a random record. It aborts if another one has committed to that record since it began. In the
//! product a commit holds a record for microseconds and nothing aborts. So these figures say how the decider follows a rate, and not
//! how many records a value needs.
//!
//! | line | words |
//! |---|---|
//! | `need` | transactions a second, share of aborts in per cent, the fewest records with no more of them |
//! | `settled` | transactions a second, where `linear` stands after 150 seconds |
//! | `follow` | policy, second, share of aborts, further records in that second |
//! | `walk` | policy, second, how many records a subtraction looked at, on average |
//!
//! Left out on purpose: threads, locks and the log. `cargo xtask bench split` measures those.

use base::{Result, key};
use node::splits::adjust::{Adjust, Policy};
use node::splits::balance::Balance;
use std::io::Write;
use txn::{Heat, Limits, Share};
use workload::rng::Rng;

use crate::figures::line;

/// Microseconds: how long a transaction takes, and the last moment of a second at which one begins.
const LASTS: u64 = 5_000;
const BEGINS: u64 = 995_000;

/// The most records of a value, as in the thesis.
const MOST: u16 = 1024;

const POLICIES: [(&str, Adjust); 3] = [
    ("binary", Adjust::Binary),
    ("linear", Adjust::Linear),
    ("quadratic", Adjust::Quadratic),
];

const BALANCES: [(&str, Balance); 4] = [
    ("minmax", Balance::Minmax),
    ("random", Balance::Random),
    ("all", Balance::All),
    ("none", Balance::None),
];

/// What a second of `n` transactions does to a value with so many records.
fn second(rng: &mut Rng, n: u64, records: u16) -> Heat {
    let mut begins: Vec<u64> = (0..n).map(|_| rng.below(BEGINS)).collect();
    begins.sort_unstable();
    // When the last transaction that commits began, for each record: all take as long, so they commit in this order.
    let mut last = vec![None; usize::from(records.max(1))];
    let mut heat = Heat::default();
    for begin in begins {
        heat.deltas += 1;
        let last = &mut last[rng.index(usize::from(records.max(1)))];
        match last.is_some_and(|last| begin < last + LASTS) {
            true => heat.waits += 1,
            false => *last = Some(begin),
        }
    }
    heat
}

/// The fewest records with which no more than this share aborts, on average over ten seconds.
fn need(n: u64, share: f64) -> u16 {
    let enough = |records: u16| {
        let rates = (0..10).map(|seed| second(&mut Rng::new(seed), n, records).rate_now());
        rates.sum::<f64>() / 10.0 <= share
    };
    let (mut low, mut high) = (1, MOST);
    while low < high {
        let middle = low.midpoint(high);
        match enough(middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    high
}

/// The worker under a load of so many transactions in each second: share of aborts, further records.
fn follow(adjust: Adjust, load: impl Iterator<Item = u64>) -> Vec<(f64, u16)> {
    let policy = Policy {
        adjust,
        ..Policy::default()
    };
    let (mut rng, mut records) = (Rng::new(15), 0);
    let seconds = load.map(|n| {
        let seen = (second(&mut rng, n, records).rate_now(), records);
        records = policy.records(seen.0, records, (0, MOST));
        seen
    });
    seconds.collect()
}

/// The thesis's jump at half of 150 seconds; and 75 more seconds at a tenth of the first load.
fn jumps() -> impl Iterator<Item = u64> {
    [1_000, 1_150, 100]
        .into_iter()
        .flat_map(|n| std::iter::repeat_n(n, 75))
}

/// A subtraction from a random record on: how many it looks at. What is missing at the end is not sold.
fn sell(shares: &mut [Share], rng: &mut Rng) -> usize {
    let (mut missing, n) = (rng.between(1, 3).into(), shares.len());
    let from = rng.index(n);
    for step in 0..n {
        let share = &mut shares[(from + step) % n];
        let taken = share.share.min(missing);
        share.share -= taken;
        missing -= taken;
        if missing == 0 {
            return step + 1;
        }
    }
    n
}

/// Sixteen records, all of the stock in the first, as where a value has just got them. 200 subtractions a second take 400
/// units, and every tenth second 4,000 come to a random record. For each second, how many records a subtraction looked at.
fn walks(balance: Balance) -> Vec<f64> {
    let mut rng = Rng::new(15);
    let mut shares = vec![
        Share {
            share: 0,
            limits: Limits {
                low: 0,
                high: i128::from(i64::MAX),
            },
        };
        16
    ];
    shares[0].share = 8_000;
    let seconds = (0..40).map(|second| {
        let mut looked = 0;
        if second > 0 && second % 10 == 0 {
            let to = rng.index(shares.len());
            shares[to].share += 4_000;
        }
        for quarter in 0..4 {
            looked += (0..50).map(|_| sell(&mut shares, &mut rng)).sum::<usize>();
            let chance = key::hash(second * 4 + quarter, b"value");
            for m in balance.moves(&shares, chance) {
                shares[usize::from(m.from)].share -= m.amount;
                shares[usize::from(m.to)].share += m.amount;
            }
        }
        looked as f64 / 200.0
    });
    seconds.collect()
}

/// Writes all lines.
pub fn run(out: &mut dyn Write) -> Result<()> {
    for n in (100..=1_000).step_by(100) {
        for share in [1.0, 2.5, 5.0, 7.5, 10.0, 20.0] {
            line(
                out,
                &format!("need\t{n}\t{share}\t{}", need(n, share / 100.0)),
            )?;
        }
        let seconds = follow(Adjust::Linear, std::iter::repeat_n(n, 150));
        let last = seconds.last().map_or(0, |s| s.1);
        line(out, &format!("settled\t{n}\t{last}"))?;
    }
    for (name, adjust) in POLICIES {
        for (at, (rate, records)) in follow(adjust, jumps()).iter().enumerate() {
            line(out, &format!("follow\t{name}\t{at}\t{rate:.4}\t{records}"))?;
        }
    }
    for (name, balance) in BALANCES {
        for (at, looked) in walks(balance).iter().enumerate() {
            line(out, &format!("walk\t{name}\t{at}\t{looked:.3}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A commit keeps a record busy for 5 ms, so of n transactions a second the share x / (1 + x) aborts, x = n * 5 ms / records.
    #[test]
    fn the_load_aborts_as_often_as_it_should() {
        for (n, records) in [(1_000, 1), (1_000, 100), (200, 4)] {
            let rates = (0..50).map(|s| second(&mut Rng::new(s), n, records).rate_now());
            let rate = rates.sum::<f64>() / 50.0;
            let x = n as f64 * 0.005 / f64::from(records);
            assert!((rate - x / (1.0 + x)).abs() < 0.02, "{n} {records}: {rate}");
        }
    }

    /// Both follow the jump, and both take back what a tenth of the load does not need.
    #[test]
    fn linear_and_quadratic_follow_the_load() {
        for adjust in [Adjust::Linear, Adjust::Quadratic] {
            let seconds = follow(adjust, jumps());
            let rate =
                |from: usize| seconds[from..from + 25].iter().map(|s| s.0).sum::<f64>() / 25.0;
            assert!(rate(50) <= 0.055, "{adjust:?}: {}", rate(50));
            assert!(rate(125) <= 0.055, "{adjust:?}: {}", rate(125));
            assert!(seconds[149].1 >= seconds[74].1, "{adjust:?}");
            assert!(seconds[224].1 < seconds[149].1 / 2 + 10, "{adjust:?}");
        }
    }

    #[test]
    fn what_is_balanced_is_found_sooner() {
        let mean = |b| walks(b).iter().sum::<f64>() / 40.0;
        let none = mean(Balance::None);
        for (name, balance) in BALANCES.into_iter().take(3) {
            assert!(mean(balance) < none * 0.8, "{name}: {}", mean(balance));
        }
    }

    #[test]
    fn each_run_prints_the_same() {
        let text = || {
            let mut out = Vec::new();
            run(&mut out).unwrap();
            out
        };
        assert!(text() == text());
    }
}
