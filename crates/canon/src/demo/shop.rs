//! The shop's tables: made once, found again by the next run, never put in the place of somebody else's.
//!
//! ```text
//! demo_shop has our line, and the three tables are there     reuse them: the books go on from the earlier runs
//! none of the four names is taken                            make them, all in one transaction
//! anything else                                              42P07: say which, and what to do; nothing is touched
//! ```
//! Left out on purpose: dropping anything. Who wants a fresh shop names a fresh directory.

use super::done;
use base::{Error, Result, SqlState};
use protocol::client::Client;

pub const ACCOUNTS: i64 = 10_000;
pub const ITEMS: i64 = 1_000;

/// What `demo_shop` says of a shop of ours. Another layout of the tables gets another line.
const MARK: &str = "canon demo, shop 1";

const TABLES: [&str; 4] = ["demo_shop", "accounts", "items", "orders"];

/// One text of statements is one transaction: a shop is there as a whole or not at all.
const SCHEMA: &str = "
CREATE TABLE demo_shop (made_by text PRIMARY KEY);
CREATE TABLE accounts (
    id int PRIMARY KEY, owner text NOT NULL, balance numeric(12,2) NOT NULL CHECK (balance >= 0));
CREATE TABLE items (
    id int PRIMARY KEY, name text NOT NULL, price numeric(8,2) NOT NULL, stock int NOT NULL CHECK (stock >= 0));
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account int NOT NULL REFERENCES accounts,
    item int NOT NULL REFERENCES items, quantity int NOT NULL, placed timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON orders (account);
INSERT INTO accounts SELECT n, 'customer ' || n, 1000 FROM generate_series(1, 10000) n;
INSERT INTO items SELECT n, 'item ' || n, n % 50 + 1, 100000 FROM generate_series(1, 1000) n;
";

/// What was found.
pub enum Shop {
    Made,
    /// The shop of an earlier run, with so many orders.
    Found {
        orders: u64,
    },
}

/// Finds the shop or makes one. 42P07 when tables of its names are not its own.
pub fn open(c: &mut Client) -> Result<Shop> {
    let names = TABLES.map(|t| format!("('{t}')")).join(", ");
    let taken = done(c.query(&format!(
        "SELECT name FROM (VALUES {names}) v (name) WHERE to_regclass('public.' || name) IS NOT NULL"
    )))?;
    let taken: Vec<String> = taken
        .into_iter()
        .flatten()
        .map(Option::unwrap_or_default)
        .collect();
    if taken.is_empty() {
        let mark = format!("INSERT INTO demo_shop VALUES ('{MARK}')");
        done(c.query(&format!("{SCHEMA}{mark}")))?;
        return Ok(Shop::Made);
    }
    if taken.len() == TABLES.len() && marked(c) {
        let orders = done(c.query("SELECT count(*) FROM orders"))?;
        let count = orders[0][0].as_deref().and_then(|n| n.parse().ok());
        return Ok(Shop::Found {
            orders: count.unwrap_or_default(),
        });
    }
    let what = format!(
        "the directory holds tables that are not the demonstration's: {}",
        taken.join(", ")
    );
    Err(Error::new(SqlState::DUPLICATE_TABLE, what)
        .detail("They were left as they are (42P07).")
        .hint("Name another directory with --data, or rename these tables."))
}

/// A table of that name with other columns is somebody else's, too.
fn marked(c: &mut Client) -> bool {
    done(c.query("SELECT made_by FROM demo_shop"))
        .is_ok_and(|rows| rows.iter().flatten().flatten().any(|m| m == MARK))
}
