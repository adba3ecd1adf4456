//! Registers: writers add one to registers and readers everywhere look at them. No read may be older than what had been acknowledged
//! when it began.
//!
//! ```text
//! writer   add one ────────▶ reply: note(register, value)
//! reader                         expected(register) ──▶ read ──▶ judge(expected, value)
//! ```
//! One clock: writers and readers share a [`Watch`], whose atomics order "the reply is here" before "the read begins" as a wall clock
//! would, and finer. So whatever `expected` says was acknowledged before the read began, and a smaller value is stale: strict
//! serializability's real-time order, for registers. A value that nobody has begun to write is worse: it is from nowhere.
//!
//! Registers stand in several tables, some under an index, so that a reader can be served by point, by range and by whole table. A share of
//! the operations goes to one hot register, where a read nearly always begins within a moment of an acknowledgement.
//!
//! Left out on purpose: transactions over several writes, which [`crate::list_append`] judges, and times: nothing here depends on them but
//! the age that a stale read is reported with.

use crate::rng::Rng;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Which registers there are, and how they are asked for in SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub tables: usize,
    /// Of each table.
    pub rows: usize,
}

/// A way to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One row by its primary key.
    Point,
    /// Half of a table by a secondary index.
    Range,
    /// A whole table.
    Table,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Point, Kind::Range, Kind::Table];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Point => "point",
            Kind::Range => "range",
            Kind::Table => "table",
        }
    }
}

/// A statement that reads: its text gives rows of (row number, value).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub kind: Kind,
    pub sql: String,
    /// The registers whose rows must come.
    pub registers: Vec<usize>,
}

impl Layout {
    pub fn registers(&self) -> usize {
        self.tables * self.rows
    }

    fn place(&self, register: usize) -> (usize, usize) {
        (register / self.rows, register % self.rows)
    }

    /// Makes the tables, with every register at 0.
    pub fn setup(&self) -> Vec<String> {
        let mut all = Vec::new();
        for t in 0..self.tables {
            let values: Vec<String> = (0..self.rows)
                .map(|r| format!("({r}, {}, 0)", r % 2))
                .collect();
            all.push(format!("DROP TABLE IF EXISTS registers_{t}"));
            all.push(format!(
                "CREATE TABLE registers_{t} (id int PRIMARY KEY, half int NOT NULL, v bigint NOT NULL)"
            ));
            all.push(format!(
                "CREATE INDEX registers_{t}_half ON registers_{t} (half)"
            ));
            all.push(format!(
                "INSERT INTO registers_{t} VALUES {}",
                values.join(", ")
            ));
        }
        all
    }

    /// Adds one and gives the new value.
    pub fn add(&self, register: usize) -> String {
        let (t, r) = self.place(register);
        format!("UPDATE registers_{t} SET v = v + 1 WHERE id = {r} RETURNING v")
    }

    /// A read of this register, and of what this kind of read shows beside it.
    pub fn read(&self, register: usize, kind: Kind) -> Read {
        let (t, r) = self.place(register);
        let first = t * self.rows;
        let (filter, registers) = match kind {
            Kind::Point => (format!(" WHERE id = {r}"), vec![register]),
            Kind::Range => (
                format!(" WHERE half = {}", r % 2),
                (0..self.rows)
                    .filter(|x| x % 2 == r % 2)
                    .map(|x| first + x)
                    .collect(),
            ),
            Kind::Table => (String::new(), (first..first + self.rows).collect()),
        };
        Read {
            kind,
            sql: format!("SELECT id, v FROM registers_{t}{filter}"),
            registers,
        }
    }

    /// The register that a row of a read of `about`'s table shows.
    pub fn register(&self, about: usize, row: usize) -> usize {
        self.place(about).0 * self.rows + row
    }

    /// Draws a register: the first one with probability `hot`, else any.
    pub fn draw(&self, rng: &mut Rng, hot: f64) -> usize {
        if rng.unit() < hot {
            return 0;
        }
        rng.below(self.registers() as u64) as usize
    }
}

/// How a read was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Fresh,
    /// Older than an acknowledged write, by this many writes.
    Stale(u64),
    /// A value that nobody had begun to write.
    FromNowhere,
}

/// Acknowledgements kept per register, to tell how old a stale read was.
const REMEMBERED: usize = 256;

struct Register {
    begun: AtomicU64,
    acknowledged: AtomicU64,
    /// When each of the newest values was acknowledged: at its number, modulo.
    at: [AtomicU64; REMEMBERED],
}

/// What has been begun and acknowledged, of every register.
pub struct Watch(Vec<Register>);

impl Watch {
    pub fn new(layout: &Layout) -> Watch {
        let register = || Register {
            begun: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            at: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        Watch((0..layout.registers()).map(|_| register()).collect())
    }

    /// A write is about to be sent. One whose outcome stays unknown has been begun all the same.
    pub fn begin(&self, register: usize) {
        self.0[register].begun.fetch_add(1, SeqCst);
    }

    /// A write gave this value, and its reply is here at `now` (any unit).
    pub fn note(&self, register: usize, value: u64, now: u64) {
        let r = &self.0[register];
        r.at[value as usize % REMEMBERED].store(now, SeqCst);
        r.acknowledged.fetch_max(value, SeqCst);
    }

    /// What a read that begins now must show at least.
    pub fn expected(&self, register: usize) -> u64 {
        self.0[register].acknowledged.load(SeqCst)
    }

    /// Judges what a read has shown; `expected` was asked before it began.
    pub fn judge(&self, register: usize, expected: u64, value: u64) -> Verdict {
        if value > self.0[register].begun.load(SeqCst) {
            Verdict::FromNowhere
        } else if value < expected {
            Verdict::Stale(expected - value)
        } else {
            Verdict::Fresh
        }
    }

    /// When the first write that a stale read did not show was acknowledged, if that is not too long ago to be remembered.
    pub fn missed_at(&self, register: usize, value: u64) -> Option<u64> {
        let r = &self.0[register];
        let missed = value + 1;
        let near = r.acknowledged.load(SeqCst) < missed + REMEMBERED as u64 / 2;
        let at = r.at[missed as usize % REMEMBERED].load(SeqCst);
        (near && at > 0).then_some(at)
    }
}

/// Judgements added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub reads: u64,
    /// Reads with a stale row in them.
    pub stale: u64,
    /// Writes that the worst of them was behind.
    pub most_behind: u64,
    /// Reads with a value that nobody wrote, or without a row that is there.
    pub wrong: u64,
}

impl Tally {
    /// One read's rows: (register, expected before it began, seen; none: the row did not come). Whether it was stale.
    pub fn read(
        &mut self,
        watch: &Watch,
        rows: impl IntoIterator<Item = (usize, u64, Option<u64>)>,
    ) -> bool {
        let (mut behind, mut wrong) = (0, false);
        for (register, expected, seen) in rows {
            match seen.map(|v| watch.judge(register, expected, v)) {
                Some(Verdict::Fresh) => {}
                Some(Verdict::Stale(n)) => behind = behind.max(n),
                Some(Verdict::FromNowhere) | None => wrong = true,
            }
        }
        self.reads += 1;
        self.stale += u64::from(behind > 0);
        self.most_behind = self.most_behind.max(behind);
        self.wrong += u64::from(wrong);
        behind > 0
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.reads += other.reads;
        self.stale += other.stale;
        self.most_behind = self.most_behind.max(other.most_behind);
        self.wrong += other.wrong;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { tables: 2, rows: 4 };

    fn write(watch: &Watch, register: usize, value: u64) {
        watch.begin(register);
        watch.note(register, value, value * 10);
    }

    #[test]
    fn a_read_older_than_an_acknowledgement_before_it_is_stale() {
        let watch = Watch::new(&LAYOUT);
        write(&watch, 5, 1);
        write(&watch, 5, 2);
        let expected = watch.expected(5);
        // Acknowledged after the read began: it may be shown and may be missing.
        write(&watch, 5, 3);
        assert_eq!(watch.judge(5, expected, 3), Verdict::Fresh);
        assert_eq!(watch.judge(5, expected, 2), Verdict::Fresh);
        assert_eq!(watch.judge(5, expected, 1), Verdict::Stale(1));
        assert_eq!(watch.missed_at(5, 1), Some(20));
        assert_eq!(watch.judge(5, watch.expected(5), 1), Verdict::Stale(2));
        // Begun and not acknowledged: nobody knows. Never begun: nobody wrote it.
        watch.begin(5);
        assert_eq!(watch.judge(5, 3, 4), Verdict::Fresh);
        assert_eq!(watch.judge(5, 3, 5), Verdict::FromNowhere);
    }

    #[test]
    fn acknowledgements_that_come_out_of_order_do_not_lower_what_is_expected() {
        let watch = Watch::new(&LAYOUT);
        for value in [2, 1] {
            watch.begin(0);
            watch.note(0, value, 1);
        }
        assert_eq!(watch.expected(0), 2);
    }

    #[test]
    fn a_read_is_as_stale_as_its_worst_row_and_a_missing_row_is_wrong() {
        let watch = Watch::new(&LAYOUT);
        for value in 1..=3 {
            write(&watch, 1, value);
        }
        let mut tally = Tally::default();
        assert!(tally.read(&watch, [(0, 0, Some(0)), (1, 3, Some(1))]));
        assert!(!tally.read(&watch, [(0, 0, Some(0)), (1, 3, None)]));
        assert!(!tally.read(&watch, [(1, 3, Some(3))]));
        let told = Tally {
            reads: 3,
            stale: 1,
            most_behind: 2,
            wrong: 1,
        };
        assert_eq!(tally, told);
    }

    #[test]
    fn every_kind_of_read_shows_the_register_that_it_is_about() {
        for register in 0..LAYOUT.registers() {
            for kind in Kind::ALL {
                let read = LAYOUT.read(register, kind);
                assert!(read.registers.contains(&register), "{read:?}");
                for r in &read.registers {
                    let (table, row) = LAYOUT.place(*r);
                    assert_eq!(LAYOUT.register(register, row), *r);
                    assert!(read.sql.contains(&format!("registers_{table}")));
                }
            }
        }
        assert_eq!(LAYOUT.setup().len(), 8);
        let mut rng = Rng::new(1);
        let hot = (0..1000)
            .filter(|_| LAYOUT.draw(&mut rng, 0.5) == 0)
            .count();
        assert!((450..700).contains(&hot), "{hot}");
    }
}
