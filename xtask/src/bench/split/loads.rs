//! What `bench split` runs: contestants, loads with their bars, the thesis's figures beside them, and the script of a client.
//!
//! Left out on purpose: the tables, which `tables` makes.

/// What was asked for beside what always runs.
#[derive(Default)]
pub struct With {
    /// The mode `rows`.
    pub rows: bool,
    /// Fixed numbers of records.
    pub records: bool,
    /// The thesis's implementation in SQL.
    pub sql: bool,
    /// The thesis's microbenchmark.
    pub micro: bool,
    /// STAMP's Vacation, as the thesis runs it.
    pub vacation: bool,
}

impl With {
    /// None: there is no such thing to ask for.
    pub fn add(&mut self, name: &str) -> Option<()> {
        match name {
            "rows" => self.rows = true,
            "records" => self.records = true,
            "sql" => self.sql = true,
            "micro" => self.micro = true,
            "vacation" => self.vacation = true,
            _ => return None,
        }
        Some(())
    }
}

pub const LEVELS: [(&str, &str); 3] = [
    ("RC", "read committed"),
    ("RR", "repeatable read"),
    ("SER", "serializable"),
];

/// Which row a client changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Row {
    Hot,
    Own,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Block,
    /// With 10 ms after each of the first four statements.
    Thinking,
    One,
    /// One read.
    Read,
    /// One to three units more or less of one of so many products: the thesis's microbenchmark.
    Micro(u32),
    /// A travel agency with so many items of each kind (`vacation`).
    Vacation(u32),
}

/// A column of the page.
#[derive(Clone, Copy)]
pub struct Contestant {
    pub name: &'static str,
    /// The server's place: PostgreSQL, canon.
    pub server: usize,
    pub table: &'static str,
    pub row: Row,
}

const fn contestant(
    name: &'static str,
    server: usize,
    table: &'static str,
    row: Row,
) -> Contestant {
    Contestant {
        name,
        server,
        table,
        row,
    }
}

pub const HOT: [Contestant; 4] = [
    contestant("ceiling", 1, "plain_stock", Row::Own),
    contestant("split", 1, "split_stock", Row::Hot),
    contestant("plain", 1, "plain_stock", Row::Hot),
    contestant("PostgreSQL", 0, "plain_stock", Row::Hot),
];

pub const RECORDS: [Contestant; 3] = [
    contestant("1 record", 1, "records_1", Row::Hot),
    contestant("8 records", 1, "records_8", Row::Hot),
    contestant("64 records", 1, "records_64", Row::Hot),
];

pub const ROWS: [Contestant; 2] = [
    contestant("rows 8", 1, "rows_8", Row::Hot),
    contestant("rows 64", 1, "rows_64", Row::Hot),
];

/// The thesis's implementation in SQL, over PostgreSQL.
pub const SQL: [Contestant; 3] = [
    contestant("SQL 1", 0, "sql_1", Row::Hot),
    contestant("SQL 8", 0, "sql_8", Row::Hot),
    contestant("SQL 64", 0, "sql_64", Row::Hot),
];

/// One value is read, with so many records.
const READ: [Contestant; 4] = [
    contestant("plain", 1, "plain_stock", Row::Hot),
    RECORDS[0],
    RECORDS[1],
    RECORDS[2],
];

/// No client meets another.
const APART: [Contestant; 2] = [
    contestant("split", 1, "split_stock", Row::Own),
    contestant("plain", 1, "plain_stock", Row::Own),
];

/// The microbenchmark: products take the place of rows.
const MICRO: [Contestant; 3] = [HOT[1], HOT[2], HOT[3]];

/// Vacation. Tables of these prefixes are made anew for each run.
const VACATION: [Contestant; 4] = [
    contestant("split", 1, "vacation_split", Row::Hot),
    contestant("plain", 1, "vacation_plain", Row::Hot),
    contestant("PostgreSQL", 0, "vacation_plain", Row::Hot),
    contestant("rows 8", 1, "vacation_rows", Row::Hot),
];

/// A ratio of two contestants, and the bar that it is held to.
pub struct Bar {
    pub of: &'static str,
    pub over: &'static str,
    pub least: f64,
}

const fn bar(of: &'static str, over: &'static str, least: f64) -> Bar {
    Bar { of, over, least }
}

pub struct Load {
    pub name: &'static str,
    pub shape: Shape,
    contestants: &'static [Contestant],
    pub bars: &'static [Bar],
}

/// A read of a value with more records may take so much more time.
const READ_BARS: [Bar; 3] = [
    bar("1 record", "plain", 1.0),
    bar("8 records", "plain", 1.0 / 1.15),
    bar("64 records", "plain", 1.0 / 1.6),
];

const fn micro(name: &'static str, products: u32) -> Load {
    Load {
        name,
        shape: Shape::Micro(products),
        contestants: &MICRO,
        bars: &[],
    }
}

const fn vacation(name: &'static str, items: u32) -> Load {
    Load {
        name,
        shape: Shape::Vacation(items),
        contestants: &VACATION,
        bars: &[],
    }
}

pub const LOADS: [Load; 10] = [
    Load {
        name: "block of five",
        shape: Shape::Block,
        contestants: &HOT,
        bars: &[bar("split", "ceiling", 0.85)],
    },
    Load {
        name: "block of five, 10 ms between",
        shape: Shape::Thinking,
        contestants: &HOT,
        bars: &[
            bar("split", "plain", 30.0),
            bar("split", "PostgreSQL", 30.0),
        ],
    },
    Load {
        name: "one statement",
        shape: Shape::One,
        contestants: &HOT,
        bars: &[bar("split", "plain", 0.95)],
    },
    Load {
        name: "one statement, a row for each client",
        shape: Shape::One,
        contestants: &APART,
        bars: &[bar("split", "plain", 0.97)],
    },
    Load {
        name: "one read",
        shape: Shape::Read,
        contestants: &READ,
        bars: &READ_BARS,
    },
    micro("micro, 1 product", 1),
    micro("micro, 8 products", 8),
    micro("micro, 128 products", MOST_PRODUCTS),
    // The fewest and the most of the thesis.
    vacation("vacation, 20 items of a kind", 20),
    vacation("vacation, 200 items of a kind", 200),
];

/// The most products of the microbenchmark.
pub const MOST_PRODUCTS: u32 = 128;

impl Load {
    /// Those that run, with the ones that were asked for.
    pub fn contestants(&self, with: &With) -> Vec<Contestant> {
        let mut all = self.contestants.to_vec();
        match self.shape {
            Shape::Read if with.sql => {
                all.push(HOT[3]);
                all.extend(SQL);
            }
            Shape::Micro(_) if with.sql => all.push(SQL[2]),
            Shape::Block | Shape::Thinking | Shape::One if all.len() == HOT.len() => {
                all.extend(RECORDS.iter().filter(|_| with.records));
                all.extend(ROWS.iter().filter(|_| with.rows));
                all.extend(SQL.iter().filter(|_| with.sql));
            }
            _ => {}
        }
        all
    }

    pub fn is_wanted(&self, with: &With, only: &str) -> bool {
        let kind = match self.shape {
            Shape::Micro(_) => with.micro,
            Shape::Vacation(_) => with.vacation,
            _ => true,
        };
        kind && self.name.contains(only)
    }

    /// At which levels it runs: a read by itself is the same at all.
    pub fn levels(&self) -> &'static [(&'static str, &'static str)] {
        match self.shape {
            Shape::Read => &LEVELS[..1],
            _ => &LEVELS,
        }
    }

    /// What the thesis found for its split value over the plain column of the same database; none: it has no such figure.
    /// Table 8, with all its numbers of clients and rows, and Figure 23.
    pub fn paper(&self, level: &str, of: &str, over: &str) -> Option<&'static str> {
        let ours =
            ["split", "1 record", "8 records", "64 records"].contains(&of) && over == "plain";
        let theirs = of.starts_with("SQL") && over == "PostgreSQL";
        if !ours && !theirs {
            return None;
        }
        match (self.shape, level) {
            (Shape::Read, _) => Some("0.61 to 0.87"),
            (Shape::Vacation(_), "RR") => Some("0.45 to 24.11"),
            (Shape::Micro(_) | Shape::One, "RC") => Some("0.68 to 14.78"),
            (Shape::Micro(_) | Shape::One, "RR") => Some("0.72 to 20.37"),
            _ => None,
        }
    }
}

/// What a client of pgbench runs.
pub fn script(shape: Shape, c: &Contestant) -> String {
    let (table, id) = match c.row {
        Row::Hot => (c.table, "0".to_owned()),
        Row::Own => (c.table, ":id".to_owned()),
    };
    let set = match c.row {
        Row::Hot => "",
        Row::Own => "\\set id :client_id + 1\n",
    };
    let update = format!("UPDATE {table} SET qty = qty - 1 WHERE id = {id};\n");
    let five = |between: &str| format!("{set}BEGIN;\n{}END;\n", [&*update; 5].join(between));
    match shape {
        Shape::One => set.to_owned() + &update,
        Shape::Read => format!("SELECT qty FROM {table} WHERE id = {id};\n"),
        Shape::Block => five(""),
        Shape::Thinking => five("\\sleep 10 ms\n"),
        Shape::Micro(products) => format!(
            "\\set id random(1, {products})\n\\set amount random(1, 3) * (2 * random(0, 1) - 1)\n\
             UPDATE {table} SET qty = qty + :amount WHERE id = :id;\n"
        ),
        Shape::Vacation(_) => unreachable!("it has clients of its own"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_thinks_between_its_statements() {
        let text = script(Shape::Thinking, &HOT[0]);
        assert_eq!(text.matches("\\sleep 10 ms").count(), 4);
        assert_eq!(text.matches("UPDATE plain_stock").count(), 5);
        assert!(
            text.starts_with("\\set id :client_id + 1\nBEGIN;\n"),
            "{text}"
        );
        assert!(text.ends_with("WHERE id = :id;\nEND;\n"), "{text}");
    }

    #[test]
    fn the_thesis_is_set_beside_what_it_measured() {
        let [block, _, one, apart, read, micro, .., vacation] = &LOADS;
        assert_eq!(
            vacation.paper("RR", "split", "plain"),
            Some("0.45 to 24.11")
        );
        assert_eq!(vacation.paper("RC", "split", "plain"), None);
        assert_eq!(one.paper("RR", "split", "plain"), Some("0.72 to 20.37"));
        assert_eq!(
            micro.paper("RC", "SQL 64", "PostgreSQL"),
            Some("0.68 to 14.78")
        );
        assert_eq!(read.paper("RC", "8 records", "plain"), Some("0.61 to 0.87"));
        assert_eq!(block.paper("RC", "split", "plain"), None);
        assert_eq!(one.paper("SER", "split", "plain"), None);
        assert_eq!(one.paper("RC", "split", "PostgreSQL"), None);
        assert_eq!(apart.paper("SER", "split", "plain"), None);
    }
}
