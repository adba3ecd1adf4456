//! SQL through the library: statements in a transaction, beside typed access to the same rows.
//!
//! A transaction that runs a statement takes a session out of the database's pool and gives it back at its end; plans are kept by
//! text and shared by all. A statement sees what the transaction has written by key, and the other way round.
//!
//! Left out on purpose: results row by row (they are kept whole), several statements in one text, and what belongs to sessions
//! (BEGIN, SET, COPY: 0A000).

use super::convert::{FromRow, Row, ToKey};
use super::database::Database;
use super::sessions::Session;
use super::transaction::Transaction;
use base::Result;
use sql::session::Answer;

impl Database {
    /// Runs one statement in a transaction of its own, again when it loses a race, and returns when it is durable: how many rows it
    /// inserted, updated, deleted or found. `values` are `$1`, `$2`, …: a value, a tuple, a slice, `()` for none.
    ///
    /// ```
    /// # use embedded::{Database, Result};
    /// # fn main() -> Result<()> {
    /// let db = Database::temporary()?;
    /// db.execute("CREATE TABLE stock (id int PRIMARY KEY, name text, qty int CHECK (qty >= 0))", ())?;
    /// db.execute("INSERT INTO stock VALUES ($1, $2, 3), ($3, 'viola', 2)", (1, "oboe", 2))?;
    /// // Typed access and SQL in one transaction, each seeing what the other wrote.
    /// let left: Vec<(String, i64)> = db.transaction(|tx| {
    ///     tx.table("stock")?.insert((3, "horn", 5))?;
    ///     tx.execute("UPDATE stock SET qty = qty - 1 WHERE id >= $1", 2)?;
    ///     tx.query("SELECT name, sum(qty) FROM stock GROUP BY name HAVING sum(qty) < $1 ORDER BY 1", 4)
    /// })?;
    /// assert_eq!(left, [("oboe".to_string(), 3), ("viola".to_string(), 1)]);
    /// let horns: Vec<(i32,)> = db.query("SELECT qty FROM stock WHERE name = $1", "horn")?;
    /// assert_eq!(horns, [(4,)]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn execute(&self, sql: &str, values: impl ToKey) -> Result<u64> {
        self.transaction(|tx| tx.execute(sql, &values))
    }

    /// The same, with the rows that the statement gives (a query's, or those of RETURNING).
    pub fn query<R: FromRow>(&self, sql: &str, values: impl ToKey) -> Result<Vec<R>> {
        self.transaction(|tx| tx.query(sql, &values))
    }

    pub(super) fn give_session(&self, session: Session) {
        self.0.sessions.give(session);
    }
}

impl Transaction<'_> {
    /// Runs one statement: how many rows it inserted, updated, deleted or found. Errors as SQL gives them; one ends the transaction.
    pub fn execute(&self, sql: &str, values: impl ToKey) -> Result<u64> {
        Ok(self.answer(sql, &values)?.affected)
    }

    /// Runs one statement and reads its rows.
    pub fn query<R: FromRow>(&self, sql: &str, values: impl ToKey) -> Result<Vec<R>> {
        let answer = self.answer(sql, &values)?;
        let rows = answer.rows.iter();
        rows.map(|values| R::from_row(Row::of_result(&answer.columns, values)))
            .collect()
    }

    fn answer(&self, sql: &str, values: &dyn ToKey) -> Result<Answer> {
        let mut params = Vec::new();
        values.each(&mut |d| {
            params.push(d.any());
            Ok(())
        })?;
        self.run(|r| {
            let session = match &mut r.sql {
                Some(s) => s,
                none => none.insert(self.db.0.sessions.take()?),
            };
            session.run(&mut r.txn, sql, &params)
        })
    }
}
