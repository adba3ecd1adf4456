//! One counter that clients at three sites of 40 ms add to, plain and split.
//!
//! Left out on purpose: guards and bounds, which `bench split` has.

use crate::Result;
use crate::wire::{Connection, Error};
use std::fmt::Write;

use super::measure::{Done, Load, Rounds, at_all, verdict};
use super::nodes::{Nodes, Way};

const PLACES: [u64; 3] = [40; 3];
/// Clients at each site, one run after the other.
const CLIENTS: [usize; 2] = [8, 16];
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
    let mut out = format!(
        "One counter, clients at each of {} sites of 40 ms, `UPDATE … SET n = n + 1`:\n\n\
         | clients a site | column | additions/s, all clients | split over plain | told to try again | busy at most | void rounds |\n|{}\n",
        PLACES.len(),
        "---|".repeat(7)
    );
    for clients in CLIENTS {
        out += &rows(clients, &turns(nodes, &ports, clients, (rounds, seconds))?);
    }
    Ok(out + "\n")
}

/// The rounds of both tables, in turns.
fn turns(
    nodes: &mut Nodes,
    ports: &[u16],
    clients: usize,
    (rounds, seconds): (usize, u64),
) -> Result<[Rounds; 2]> {
    let mut all: [Rounds; 2] = Default::default();
    for round in 0..rounds {
        for turn in 0..2 {
            let at = (round + turn) % 2;
            let add = format!("UPDATE counter_{} SET n = n + 1 WHERE id = 1", TABLES[at]);
            let before = nodes.cpu();
            let done = at_all(ports, clients, seconds, |_, _| Add(add.clone()))?;
            let after = nodes.cpu();
            let sum: usize = done.0.iter().map(|d| d.transactions).sum();
            let each = |cpu: f64| cpu * 1e3 / sum.max(1) as f64;
            let sites: f64 = after.1.iter().sum::<f64>() - before.1.iter().sum::<f64>();
            println!(
                "round {} of {rounds}, {clients} clients a site, {} counter: {sum} additions, busy {}; CPU for each: primary {:.2} ms, sites {:.2} ms",
                round + 1,
                TABLES[at],
                done.1,
                each(after.0 - before.0),
                each(sites)
            );
            all[at].take(done);
            nodes.catch_up()?;
        }
    }
    Ok(all)
}

/// The lines of both tables with so many clients at each site.
fn rows(clients: usize, all: &[Rounds; 2]) -> String {
    let sum = |rounds: &Rounds| {
        let rates: Option<Vec<f64>> = (0..PLACES.len()).map(|p| Some(rounds.rate(p)?.0)).collect();
        rates.map(|r| r.iter().sum::<f64>() * clients as f64)
    };
    let ratio = sum(&all[0]).zip(sum(&all[1]));
    let ratio = ratio.map(|(plain, split)| split / plain.max(1e-9));
    let ratio = ratio.map_or("void".into(), |r| {
        format!("{r:.1}, {}", verdict(r, Some(20.0)))
    });
    let mut out = String::new();
    for (rounds, (name, ratio)) in all.iter().zip(TABLES.iter().zip(["", &ratio])) {
        let rate = sum(rounds).map_or("void".into(), |r| format!("{r:.1}"));
        let _ = writeln!(
            out,
            "| {clients} | {name} | {rate} | {ratio} | {} | {} | {} |",
            rounds.all().again(),
            rounds.most_busy(),
            rounds.void
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::measure::tests::rounds;
    use super::*;

    #[test]
    fn split_is_set_against_plain() {
        let text = rows(8, &[rounds(&[10; 3], 0.5), rounds(&[190; 3], 0.5)]);
        let split = "| 8 | split | 456.0 | 19.0, at least 20: **missed** | 0 |";
        assert!(text.contains(split), "{text}");
        let void = rows(8, &[rounds(&[10; 3], 0.5), rounds(&[190; 3], 0.9)]);
        assert!(
            void.contains("| 8 | split | void | void | 0 | 90 % (clients 10 %, links 5 %) | 1 |"),
            "{void}"
        );
    }
}
