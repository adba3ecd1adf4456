//! README's second program: SQL beside access by key, in one transaction.

use canon::{Database, row};

fn main() -> canon::Result<()> {
    let db = Database::temporary()?;
    db.execute("CREATE TABLE stock (id int8 PRIMARY KEY, qty int8)", ())?;
    db.execute("INSERT INTO stock VALUES (1, 70), (2, 130)", ())?;
    db.execute("UPDATE stock SET qty = qty + $1 WHERE id = $2", (5, 2))?;

    let plenty: Vec<(i64, i64)> = db.transaction(|tx| {
        let stock = tx.table("stock")?;
        stock.update(1, |s: (i64, i64)| row! { qty: s.1 + 60 })?;
        tx.query("SELECT id, qty FROM stock WHERE qty > $1 ORDER BY id", 100)
    })?;
    assert_eq!(plenty, [(1, 130), (2, 135)]);
    Ok(())
}
