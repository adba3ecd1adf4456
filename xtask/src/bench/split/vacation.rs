//! STAMP's Vacation over SQL, as the thesis runs it (§4.5): a travel agency. Its cars, flights and rooms are few, so all clients want the same ones.
//!
//! | task | of 100 | does |
//! |---|---|---|
//! | reserve | 80 | asks the prices of ten random items, and takes the dearest of each kind if one is free |
//! | customer | 10 | forgets a customer, whose items are free again |
//! | more | 5 | a hundred more of ten random items, each at a new price |
//! | fewer | 5 | a hundred fewer of ten random items that have so many free |
//!
//! ```text
//! PREFIX_car, PREFIX_flight, PREFIX_room     id, numtotal, numfree, price      numtotal and numfree are split, with CHECKs of at least 0
//! PREFIX_customer                            id
//! PREFIX_reserved                            customer, kind, item, price
//! ```
//! A transaction that loses a race is tried again as it was. Each run begins with fresh tables, warms up, and ends with a look at the books: of
//! each item, what is not free is what customers have.
//!
//! Two things differ from the thesis's client. It asks `numfree > 0` when it reads a price; here the UPDATE asks it, because a value that is
//! read and changed is certified. And `price` is no split value: a restock, which sets it, is an exact write.
//!
//! Left out on purpose: prepared statements. Both servers parse the same simple queries.

use super::super::sample::Sample;
use super::loads::Contestant;
use crate::server::Server;
use crate::{Result, process, wire};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const KINDS: [&str; 3] = ["car", "flight", "room"];
/// Items that a reservation asks for, and a delivery changes.
const ASKED: u64 = 10;
/// Free of each item at the start.
const FREE: u32 = 500;
const WARM: Duration = Duration::from_secs(2);
/// What a lost race is told.
const AGAIN: [&str; 2] = ["40001", "40P01"];

/// How the columns of the items are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    Split,
    Rows,
}

impl Way {
    fn of(c: &Contestant) -> Way {
        match c.table {
            "vacation_plain" => Way::Plain,
            "vacation_split" => Way::Split,
            _ => Way::Rows,
        }
    }

    /// What makes the tables, one statement each.
    fn tables(self, prefix: &str) -> Vec<String> {
        let mut all = vec![
            format!("DROP TABLE IF EXISTS {prefix}_customer, {prefix}_reserved"),
            format!("CREATE TABLE {prefix}_customer (id int PRIMARY KEY)"),
            format!(
                "CREATE TABLE {prefix}_reserved (customer int, kind int, item int, price int NOT NULL, PRIMARY KEY (customer, kind, item))"
            ),
        ];
        for kind in KINDS {
            let table = format!("{prefix}_{kind}");
            let with = match self {
                Way::Plain => "",
                _ => " WITH (split = 'numtotal, numfree')",
            };
            all.push(format!("DROP TABLE IF EXISTS {table}"));
            all.push(format!(
                "CREATE TABLE {table} (id int PRIMARY KEY, numtotal int NOT NULL CHECK (numtotal >= 0), \
                 numfree int NOT NULL CHECK (numfree >= 0), price int NOT NULL){with}"
            ));
            if self == Way::Rows {
                for column in ["numtotal", "numfree"] {
                    all.push(format!(
                        "ALTER TABLE {table} ALTER COLUMN {column} SET (split_mode = rows, split_max = 7, split_min = 7)"
                    ));
                }
            }
        }
        all
    }
}

/// So many items of each kind, and customers.
fn prepare(server: &Server, way: Way, prefix: &str, rows: u32) -> Result<()> {
    for text in way.tables(prefix) {
        server.sql(&text)?;
    }
    server.sql(&format!(
        "INSERT INTO {prefix}_customer SELECT g FROM generate_series(1, {rows}) g"
    ))?;
    for kind in KINDS {
        server.sql(&format!(
            "INSERT INTO {prefix}_{kind} SELECT g, {FREE}, {FREE}, 50 + g % 5 * 10 FROM generate_series(1, {rows}) g"
        ))?;
    }
    Ok(())
}

/// What is not free is what customers have.
fn check_books(server: &Server, prefix: &str) -> Result<()> {
    for (number, kind) in KINDS.iter().enumerate() {
        let wrong = server.sql(&format!(
            "SELECT id, numtotal, numfree FROM {prefix}_{kind} WHERE numfree < 0 OR numtotal - numfree <> \
             (SELECT count(*) FROM {prefix}_reserved r WHERE r.kind = {number} AND r.item = {prefix}_{kind}.id)"
        ))?;
        if let Some(row) = wrong.rows.first() {
            return Err(format!(
                "{}: the books of {prefix}_{kind} are wrong: {row:?}",
                server.name
            ));
        }
    }
    Ok(())
}

/// splitmix64, which is enough to choose items.
#[derive(Clone)]
struct Rng(u64);

impl Rng {
    /// Of `0..n`.
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

type Ran<T> = std::result::Result<T, wire::Error>;

/// One client: its connection, and what it chooses from.
struct Client<'a> {
    connection: wire::Connection,
    prefix: &'a str,
    rows: u64,
    begin: String,
}

/// One value of an answer as a number; 0 for none.
fn number(row: &[Option<String>], at: usize) -> i64 {
    let value = row.get(at).and_then(Option::as_deref);
    value.and_then(|v| v.parse().ok()).unwrap_or(0)
}

impl Client<'_> {
    fn query(&mut self, text: &str) -> Ran<wire::Rows> {
        self.connection.query(text)
    }

    /// A random kind, its table, and a random item of it.
    fn item(&self, rng: &mut Rng) -> (usize, String, u64) {
        let kind = rng.below(KINDS.len() as u64) as usize;
        let table = format!("{}_{}", self.prefix, KINDS[kind]);
        (kind, table, 1 + rng.below(self.rows))
    }

    fn reserve(&mut self, rng: &mut Rng) -> Ran<()> {
        let prefix = self.prefix;
        let customer = 1 + rng.below(self.rows);
        // The dearest of each kind: its price, its table, its number.
        let mut chosen: [Option<(i64, String, u64)>; 3] = [None, None, None];
        for _ in 0..ASKED {
            let (kind, table, item) = self.item(rng);
            let found = self.query(&format!("SELECT price FROM {table} WHERE id = {item}"))?;
            let price = found.rows.first().map_or(0, |r| number(r, 0));
            if chosen[kind].as_ref().is_none_or(|c| c.0 < price) {
                chosen[kind] = Some((price, table, item));
            }
        }
        self.query(&format!(
            "INSERT INTO {prefix}_customer VALUES ({customer}) ON CONFLICT DO NOTHING"
        ))?;
        for (kind, chosen) in chosen.into_iter().enumerate() {
            let Some((price, table, item)) = chosen else {
                continue;
            };
            let took = self.query(&format!(
                "UPDATE {table} SET numfree = numfree - 1 WHERE id = {item} AND numfree > 0"
            ))?;
            if took.changed == 0 {
                continue;
            }
            let noted = self.query(&format!(
                "INSERT INTO {prefix}_reserved VALUES ({customer}, {kind}, {item}, {price}) ON CONFLICT DO NOTHING"
            ))?;
            if noted.changed == 0 {
                // The customer has it already.
                self.query(&format!(
                    "UPDATE {table} SET numfree = numfree + 1 WHERE id = {item}"
                ))?;
            }
        }
        Ok(())
    }

    fn forget_customer(&mut self, rng: &mut Rng) -> Ran<()> {
        let prefix = self.prefix;
        let customer = 1 + rng.below(self.rows);
        let had = self.query(&format!(
            "DELETE FROM {prefix}_reserved WHERE customer = {customer} RETURNING kind, item, price"
        ))?;
        for (number_of, kind) in KINDS.iter().enumerate() {
            let items = had.rows.iter().filter(|r| number(r, 0) == number_of as i64);
            let mut items: Vec<i64> = items.map(|r| number(r, 1)).collect();
            items.sort_unstable();
            if items.is_empty() {
                continue;
            }
            let items: Vec<String> = items.iter().map(i64::to_string).collect();
            self.query(&format!(
                "UPDATE {prefix}_{kind} SET numfree = numfree + 1 WHERE id IN ({})",
                items.join(", ")
            ))?;
        }
        self.query(&format!(
            "DELETE FROM {prefix}_customer WHERE id = {customer}"
        ))?;
        Ok(())
    }

    fn deliver(&mut self, rng: &mut Rng, more: bool) -> Ran<()> {
        for _ in 0..ASKED {
            let (_, table, item) = self.item(rng);
            let price = 50 + rng.below(5) * 10;
            self.query(&match more {
                true => format!(
                    "UPDATE {table} SET numtotal = numtotal + 100, numfree = numfree + 100, price = {price} WHERE id = {item}"
                ),
                false => format!(
                    "UPDATE {table} SET numtotal = numtotal - 100, numfree = numfree - 100 WHERE id = {item} AND numfree >= 100"
                ),
            })?;
        }
        Ok(())
    }

    fn task(&mut self, mut rng: Rng) -> Ran<()> {
        let begin = self.begin.clone();
        self.query(&begin)?;
        match rng.below(100) {
            0..80 => self.reserve(&mut rng)?,
            80..90 => self.forget_customer(&mut rng)?,
            90..95 => self.deliver(&mut rng, true)?,
            _ => self.deliver(&mut rng, false)?,
        }
        self.query("COMMIT").map(drop)
    }

    /// Runs tasks until it is told to stop: how many ended, and how often one was tried again, both while `counts`.
    fn run(&mut self, me: u64, stop: &AtomicBool, counts: &AtomicBool) -> Ran<(u64, u64)> {
        let (mut done, mut again) = (0, 0);
        let mut choice = Rng(me << 32);
        while !stop.load(Ordering::Relaxed) {
            let task = Rng(choice.below(u64::MAX));
            loop {
                let ended = self.task(task.clone());
                let counted = u64::from(counts.load(Ordering::Relaxed));
                match ended {
                    Ok(()) => {
                        done += counted;
                        break;
                    }
                    Err(e) if AGAIN.contains(&&*e.code) => {
                        again += counted;
                        self.query("ROLLBACK")?;
                    }
                    Err(e) => return Err(e),
                }
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        Ok((done, again))
    }
}

/// One run: tasks per second, the server's CPU per task, tries beyond the first per task.
pub fn measure(
    server: &Server,
    c: &Contestant,
    rows: u32,
    level: &str,
    (clients, seconds): (u32, u32),
) -> Result<Sample> {
    let prefix = c.table;
    prepare(server, Way::of(c), prefix, rows)?;
    let (stop, counts) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut connections = vec![];
    for _ in 0..clients {
        connections.push(server.connect().map_err(|e| e.to_string())?);
    }
    let (ended, took, cpu) = std::thread::scope(|scope| {
        let begun = connections.into_iter().zip(1..).map(|(connection, me)| {
            let mut client = Client {
                connection,
                prefix,
                rows: u64::from(rows),
                begin: format!("BEGIN ISOLATION LEVEL {level}"),
            };
            let (stop, counts) = (&stop, &counts);
            scope.spawn(move || client.run(me, stop, counts))
        });
        let begun: Vec<_> = begun.collect();
        std::thread::sleep(WARM);
        let (since, before) = (Instant::now(), process::cpu_seconds(server.pid()));
        counts.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(u64::from(seconds)));
        counts.store(false, Ordering::Relaxed);
        let (took, after) = (since.elapsed(), process::cpu_seconds(server.pid()));
        stop.store(true, Ordering::Relaxed);
        let ended = begun.into_iter().map(|c| c.join().expect("a client ends"));
        (ended.collect::<Vec<_>>(), took, after - before)
    });
    let (mut done, mut again) = (0, 0);
    for one in ended {
        let one = one.map_err(|e| format!("{}, vacation, {level}: {e}", c.name))?;
        (done, again) = (done + one.0, again + one.1);
    }
    check_books(server, prefix)?;
    let each = |n: f64| if done > 0 { n / done as f64 } else { 0.0 };
    Ok(Sample {
        tps: done as f64 / took.as_secs_f64(),
        cpu_us: each(cpu * 1e6),
        retries: each(again as f64),
        ..Sample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ways_differ_in_their_columns_alone() {
        let plain = Way::Plain.tables("a").join(";");
        let split = Way::Split.tables("a").join(";");
        assert!(!plain.contains("split"));
        let with = " WITH (split = 'numtotal, numfree')";
        assert_eq!(split.matches(with).count(), KINDS.len());
        assert_eq!(split.replace(with, ""), plain);
        let rows = Way::Rows.tables("a").join(";");
        assert_eq!(rows.matches("split_mode = rows").count(), 2 * KINDS.len());
    }
}
