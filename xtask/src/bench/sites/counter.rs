//! One counter that clients at three sites of 40 ms add to, plain and split.
//!
//! Left out on purpose: guards and bounds, which `bench split` has.

use crate::Result;
use crate::wire::{Connection, Error};
use std::fmt::Write;

use super::measure::{Done, Load, Rounds, at_all, verdict};
use super::nodes::{Nodes, Way};

const PLACES: [u64; 3] = [40; 3];
const CLIENTS: usize = 8;
const TABLES: [&str; 2] = ["plain", "split"];

/// One addition.
struct Add(String);

impl Load for Add {
    fn unit(&mut self, c: &mut Connection, done: &mut Done) -> std::result::Result<(), Error> {
        match c.query(&self.0) {
            Ok(_) => done.transactions += 1,
            Err(e) => done.has_lost("addition", e)?,
        }
        Ok(())
    }
}

pub fn run(nodes: &mut Nodes, (rounds, seconds): (usize, u64)) -> Result<String> {
    nodes.primary.sql(
        "CREATE TABLE counter_plain (id int PRIMARY KEY, n bigint NOT NULL);
         CREATE TABLE counter_split (id int PRIMARY KEY, n bigint NOT NULL) WITH (split = 'n');
         INSERT INTO counter_plain VALUES (1, 0); INSERT INTO counter_split VALUES (1, 0)",
    )?;
    let ports = nodes.ports(Way::Site, &PLACES)?;
    let mut all: [Rounds; 2] = Default::default();
    for round in 0..rounds {
        for turn in 0..2 {
            let at = (round + turn) % 2;
            let add = format!("UPDATE counter_{} SET n = n + 1 WHERE id = 1", TABLES[at]);
            let before = nodes.cpu();
            let done = at_all(&ports, CLIENTS, seconds, |_, _| Add(add.clone()))?;
            let after = nodes.cpu();
            let sum: usize = done.0.iter().map(|d| d.transactions).sum();
            let each = |cpu: f64| cpu * 1e3 / sum.max(1) as f64;
            let sites: f64 = after.1.iter().sum::<f64>() - before.1.iter().sum::<f64>();
            println!(
                "round {} of {rounds}, {} counter: {sum} additions, {:.0} % busy; CPU for each: primary {:.2} ms, sites {:.2} ms",
                round + 1,
                TABLES[at],
                done.1 * 100.0,
                each(after.0 - before.0),
                each(sites)
            );
            all[at].take(done);
            nodes.catch_up()?;
        }
    }
    Ok(table(&all))
}

fn table(all: &[Rounds; 2]) -> String {
    let mut out = format!(
        "One counter, {CLIENTS} clients at each of {} sites of 40 ms, `UPDATE … SET n = n + 1`:\n\n\
         | column | additions/s, all clients | told to try again | busy at most | void rounds |\n|---|---|---|---|---|\n",
        PLACES.len()
    );
    let sum = |rounds: &Rounds| {
        let rates: Option<Vec<f64>> = (0..PLACES.len()).map(|p| Some(rounds.rate(p)?.0)).collect();
        rates.map(|r| r.iter().sum::<f64>() * CLIENTS as f64)
    };
    for (rounds, name) in all.iter().zip(TABLES) {
        let rate = sum(rounds).map_or("void".into(), |r| format!("{r:.1}"));
        let _ = writeln!(
            out,
            "| {name} | {rate} | {} | {} | {} |",
            rounds.all().again(),
            rounds.most_busy(),
            rounds.void
        );
    }
    if let (Some(plain), Some(split)) = (sum(&all[0]), sum(&all[1])) {
        let ratio = split / plain.max(1e-9);
        let _ = writeln!(
            out,
            "\nSplit over plain: {ratio:.1}, {}.",
            verdict(ratio, Some(20.0))
        );
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::measure::tests::rounds;
    use super::*;

    #[test]
    fn split_is_set_against_plain() {
        let text = table(&[rounds(&[10; 3], 0.5), rounds(&[190; 3], 0.5)]);
        assert!(
            text.contains("Split over plain: 19.0, at least 20: **missed**."),
            "{text}"
        );
        let void = table(&[rounds(&[10; 3], 0.5), rounds(&[190; 3], 0.9)]);
        assert!(void.contains("| split | void | 0 | 90 % | 1 |"), "{void}");
        assert!(!void.contains("Split over"), "{void}");
    }
}
