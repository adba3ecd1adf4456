//! README's first program: tables, transactions and scans by key, without SQL.

use canon::database::prefix;
use canon::{Database, TableBuilder, Type, row};

fn main() -> canon::Result<()> {
    // Database::open("/var/lib/shop", Default::default()) keeps the data.
    let db = Database::temporary()?;
    let accounts = TableBuilder::new("accounts")
        .column("id", Type::Int8)
        .column("balance", Type::Int8)
        .primary_key(["id"]);
    let transfers = TableBuilder::new("transfers")
        .column("account", Type::Int8)
        .column("number", Type::Int4)
        .column("amount", Type::Int8)
        .primary_key(["account", "number"])
        .references(["account"], "accounts");
    db.create_table(accounts)?;
    db.create_table(transfers)?;
    db.transaction(|tx| {
        let accounts = tx.table("accounts")?;
        (1..=3).try_for_each(|id: i64| accounts.insert((id, 100)))
    })?;

    // The closure runs again if the transaction loses a race. The call returns when the commit is on disk.
    let left = db.transaction(|tx| {
        let (accounts, transfers) = (tx.table("accounts")?, tx.table("transfers")?);
        let (_, balance): (i64, i64) = accounts.get(1)?.expect("account 1");
        accounts.update(1, |a: (i64, i64)| row! { balance: a.1 - 30 })?;
        accounts.update(2, |a: (i64, i64)| row! { balance: a.1 + 30 })?;
        transfers.insert((1, 1, -30))?;
        Ok(balance - 30)
    })?;

    let sent: Vec<(i64, i32, i64)> =
        db.read(|tx| tx.table("transfers")?.scan(prefix(1)).reverse().rows())?;
    assert_eq!((left, sent), (70, vec![(1, 1, -30)]));
    Ok(())
}
