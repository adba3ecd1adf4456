//! Clients at several places at once: what each did, and how busy the machine was meanwhile.
//!
//! A client runs units of a [`Load`] one after the other until its time is over, and ends with a whole unit. So a rate is units over the
//! time that they took, also where one takes longer than the round. The machine is looked at for as long as all clients run.
//!
//! The clients and the delayed links are threads of this process. What they take counts to what keeps the machine busy, and is said beside it.
//!
//! Left out on purpose: what a unit is.

use crate::bench::delay;
use crate::server::USER;
use crate::wire::{Connection, Error};
use crate::{Result, process};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Share of the machine above which a round says something of the processors and not of the distance.
pub const BUSY: f64 = 0.7;

/// Shares of the machine: what was busy, and of that the bench's own clients and links.
#[derive(Clone, Copy, Debug, Default)]
pub struct Busy {
    pub all: f64,
    pub clients: f64,
    pub links: f64,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [all, clients, links] = [self.all, self.clients, self.links].map(|share| share * 100.0);
        write!(f, "{all:.0} % (clients {clients:.0} %, links {links:.0} %)")
    }
}

/// Seconds so far: of busy processors, of all, of this process without its links, of the links.
struct Seconds([f64; 4]);

impl Seconds {
    fn now() -> Seconds {
        let (busy, all) = process::machine_seconds();
        let links = delay::cpu_seconds();
        let here = process::cpu_seconds_here();
        Seconds([busy, all, here - links, links])
    }

    fn busy_since(&self, before: &Seconds) -> Busy {
        let grown = |n: usize| self.0[n] - before.0[n];
        let share = |n| (grown(n) / grown(1).max(0.01)).max(0.0);
        Busy {
            all: share(0),
            clients: share(2),
            links: share(3),
        }
    }
}

/// What clients did in one round.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub transactions: usize,
    /// Transactions that were told to try again, by what they were told.
    pub lost: BTreeMap<String, usize>,
    /// Summed over the clients.
    pub seconds: f64,
    /// Of these, inside of COMMIT.
    pub committing: f64,
}

impl Done {
    /// Transactions per second and client.
    pub fn rate(&self) -> f64 {
        self.transactions as f64 / self.seconds.max(1e-9)
    }

    pub fn add(&mut self, other: &Done) {
        self.transactions += other.transactions;
        for (what, n) in &other.lost {
            *self.lost.entry(what.clone()).or_default() += n;
        }
        self.seconds += other.seconds;
        self.committing += other.committing;
    }

    /// Transactions that were told to try again.
    pub fn again(&self) -> usize {
        self.lost.values().sum()
    }

    /// Notes a transaction of this kind that has to run again; any other error is one.
    pub fn has_lost(&mut self, kind: &str, e: Error) -> std::result::Result<(), Error> {
        if !["40001", "40P01"].contains(&&*e.code) {
            return Err(e);
        }
        let at = match e.table.is_empty() {
            true => String::new(),
            false => format!(" ({})", e.table),
        };
        let what = format!("{kind}{at}: {} {}", e.code, e.message);
        *self.lost.entry(what).or_default() += 1;
        Ok(())
    }

    /// COMMIT, whose time is noted.
    pub fn commit(&mut self, c: &mut Connection) -> std::result::Result<(), Error> {
        let began = Instant::now();
        let ended = c.query("COMMIT");
        self.committing += began.elapsed().as_secs_f64();
        ended.map(drop)
    }
}

/// What one client runs.
pub trait Load: Send {
    /// One unit, with what it counts.
    fn unit(&mut self, c: &mut Connection, done: &mut Done) -> std::result::Result<(), Error>;
}

fn client(port: u16, seconds: u64, mut load: impl Load) -> Result<Done> {
    let failed = |e| format!("port {port}: {e}");
    let mut c = Connection::open(port, USER).map_err(failed)?;
    let mut done = Done::default();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        load.unit(&mut c, &mut done).map_err(failed)?;
    }
    done.seconds = began.elapsed().as_secs_f64();
    Ok(done)
}

/// Runs so many clients at each port at once; what those of each port did, and how busy the machine was. `make` gives the load of a place's
/// client.
pub fn at_all<L: Load + 'static>(
    ports: &[u16],
    clients: usize,
    seconds: u64,
    make: impl Fn(usize, usize) -> L,
) -> Result<(Vec<Done>, Busy)> {
    let before = Seconds::now();
    let mut running = Vec::new();
    for (place, port) in ports.iter().enumerate() {
        for c in 0..clients {
            let (port, load) = (*port, make(place, c));
            running.push(std::thread::spawn(move || client(port, seconds, load)));
        }
    }
    std::thread::sleep(Duration::from_secs(seconds));
    let busy = Seconds::now().busy_since(&before);
    let mut all = Vec::new();
    for r in running {
        all.push(r.join().map_err(|_| "a client panicked")??);
    }
    let sum = |some: &[Done]| {
        let mut sum = Done::default();
        some.iter().for_each(|d| sum.add(d));
        sum
    };
    Ok((all.chunks(clients).map(sum).collect(), busy))
}

/// What the rounds of one way gave: for each that counts, what each place did.
#[derive(Default)]
pub struct Rounds {
    counted: Vec<Vec<Done>>,
    pub void: usize,
    /// Of all rounds.
    busy: Vec<Busy>,
}

impl Rounds {
    /// A round on a machine that was too busy does not count.
    pub fn take(&mut self, (done, busy): (Vec<Done>, Busy)) {
        self.busy.push(busy);
        match busy.all <= BUSY {
            true => self.counted.push(done),
            false => self.void += 1,
        }
    }

    /// The rate at a place over all rounds that count, the least and the most of them; `None` where there is none.
    pub fn rate(&self, place: usize) -> Option<(f64, f64, f64)> {
        let mut all: Vec<f64> = self.counted.iter().map(|r| r[place].rate()).collect();
        all.sort_by(f64::total_cmp);
        Some((self.sum(place).rate(), *all.first()?, *all.last()?))
    }

    /// What a place did in all rounds that count.
    pub fn sum(&self, place: usize) -> Done {
        let mut sum = Done::default();
        self.counted.iter().for_each(|r| sum.add(&r[place]));
        sum
    }

    /// What all places did in all rounds that count.
    pub fn all(&self) -> Done {
        let mut sum = Done::default();
        self.counted.iter().flatten().for_each(|d| sum.add(d));
        sum
    }

    /// The most busy the machine was.
    pub fn most_busy(&self) -> String {
        let most = self.busy.iter().max_by(|a, b| a.all.total_cmp(&b.all));
        most.map_or("-".into(), Busy::to_string)
    }
}

pub fn shown(rate: Option<(f64, f64, f64)>) -> String {
    rate.map_or("void".into(), |(rate, least, most)| {
        format!("{rate:.2} ({least:.2} .. {most:.2})")
    })
}

/// How a ratio stands to its bar.
pub fn verdict(ratio: f64, bar: Option<f64>) -> String {
    match bar {
        None => "-".into(),
        Some(bar) if ratio >= bar => format!("at least {bar}: holds"),
        Some(bar) => format!("at least {bar}: **missed**"),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// One round of places that ran so many transactions in 10 s.
    pub fn rounds(transactions: &[usize], all: f64) -> Rounds {
        let mut rounds = Rounds::default();
        let busy = Busy {
            all,
            clients: 0.1,
            links: 0.05,
        };
        let done = transactions.iter().map(|n| Done {
            transactions: *n,
            seconds: 10.0,
            ..Done::default()
        });
        rounds.take((done.collect(), busy));
        rounds
    }

    #[test]
    fn a_round_on_a_busy_machine_is_void() {
        let mut all = rounds(&[100], 0.5);
        let busy = Busy {
            all: 0.8,
            ..Busy::default()
        };
        all.take((vec![], busy));
        assert_eq!((all.void, all.rate(0)), (1, Some((10.0, 10.0, 10.0))));
        assert_eq!(all.most_busy(), "80 % (clients 0 %, links 0 %)");
        assert_eq!(rounds(&[100], 0.8).rate(0), None);
    }

    #[test]
    fn what_the_bench_takes_itself_is_told_apart() {
        let before = Seconds([10.0, 100.0, 1.0, 0.5]);
        let busy = Seconds([16.0, 110.0, 2.0, 1.0]).busy_since(&before);
        assert_eq!(busy.to_string(), "60 % (clients 10 %, links 5 %)");
    }

    #[test]
    fn a_longer_round_counts_for_longer() {
        let mut all = rounds(&[100], 0.5);
        let done = Done {
            transactions: 20,
            seconds: 30.0,
            ..Done::default()
        };
        all.take((vec![done], Busy::default()));
        let (rate, least, most) = all.rate(0).expect("both count");
        assert!((rate - 3.0).abs() < 1e-9 && (least - 2.0 / 3.0).abs() < 1e-9 && most == 10.0);
    }

    #[test]
    fn what_is_lost_is_told_apart_by_what_was_said() {
        let mut done = Done::default();
        let error = |code: &str| Error {
            code: code.into(),
            message: "m".into(),
            table: "district".into(),
        };
        assert!(done.has_lost("NewOrder", error("40001")).is_ok());
        assert!(done.has_lost("NewOrder", error("40001")).is_ok());
        assert!(done.has_lost("Payment", error("23505")).is_err());
        let lost: Vec<_> = done.lost.into_iter().collect();
        assert_eq!(lost, [("NewOrder (district): 40001 m".to_owned(), 2)]);
    }
}
