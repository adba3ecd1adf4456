//! `canon_split_values`: which values it shows, what it says of them, and to which roles.

use super::common::Server;
use super::helpers::{one, refused, rows, skip, until};

const QTY: &str = "SELECT table_name || ' ' || column_name || ' ' || key || ' ' || records || ' ' || total || ' ' || reserved
    FROM canon_split_values WHERE column_name = 'qty'";

#[tokio::test(flavor = "multi_thread")]
async fn the_view_shows_a_value_while_it_is_used_or_has_further_records() {
    if skip() {
        return;
    }
    let server = Server::start().await;
    let (c, seller) = (server.connect().await, server.connect().await);
    let setup = "CREATE TABLE stock (id int PRIMARY KEY, qty int NOT NULL CHECK (qty >= 0), paid numeric(12,2) NOT NULL)
            WITH (split = 'qty, paid');
         ALTER TABLE stock ALTER COLUMN qty SET (split_min = 3);
         INSERT INTO stock VALUES (1, 10, 0), (2, 10, 0)";
    c.batch_execute(setup).await.expect("a stock");
    let count = "SELECT count(*) FROM canon_split_values";
    assert_eq!(one(&c, count).await, "0");

    // A guard is reserved whole while a SERIALIZABLE transaction runs; the worker spreads the value beside its delta.
    let take = "BEGIN ISOLATION LEVEL SERIALIZABLE;
        UPDATE stock SET qty = qty - 2, paid = paid + 19.98 WHERE id = 1 AND qty >= 5";
    seller.batch_execute(take).await.expect("a delta");
    until(&c, QTY, "stock qty (id)=(1) 4 10 5").await;
    // No commit waited for the other column, and it asks for no records: it is not watched.
    assert_eq!(one(&c, count).await, "1");
    seller.batch_execute("COMMIT").await.expect("committed");
    assert_eq!(one(&c, QTY).await, "stock qty (id)=(1) 4 8 0");
    let relid = "SELECT relid = 'stock'::regclass AND heat >= 0 FROM canon_split_values";
    assert_eq!(one(&c, relid).await, "t");
    // All places of the catalog but this leave hidden tables out.
    let hidden = "SELECT count(*) FROM pg_class WHERE relname LIKE '%split%' AND relkind = 'r'";
    assert_eq!(one(&c, hidden).await, "0");

    // Keys and totals are contents of the table.
    let roles = "CREATE ROLE stranger; CREATE ROLE keeper; GRANT SELECT ON stock TO stranger; SET ROLE stranger";
    c.batch_execute(roles).await.expect("roles");
    assert_eq!(one(&c, count).await, "0");
    let given = "RESET ROLE; ALTER TABLE stock OWNER TO keeper; SET ROLE keeper";
    c.batch_execute(given).await.expect("another owner");
    assert_eq!(one(&c, count).await, "1");
    c.batch_execute("RESET ROLE").await.expect("reset");

    // What rests loses its records, and is forgotten.
    let fewer = "ALTER TABLE stock ALTER COLUMN qty SET (split_min = 0)";
    c.batch_execute(fewer).await.expect("a setting");
    until(&c, count, "0").await;
    assert_eq!(one(&c, "SELECT qty FROM stock WHERE id = 1").await, "8");

    // It is gone at once with the setting, in the same transaction, and with the table.
    super::spread(&c, 2).await;
    rows(
        &c,
        "BEGIN; ALTER TABLE stock ALTER COLUMN qty RESET (split)",
    )
    .await;
    rows(&c, "ROLLBACK").await;
    assert_eq!(one(&c, QTY).await, "stock qty (id)=(1) 3 8 0");
    rows(&c, "ALTER TABLE stock ALTER COLUMN qty RESET (split)").await;
    assert_eq!(one(&c, count).await, "0");
    assert_eq!(one(&c, "SELECT sum(qty) FROM stock").await, "18");
    super::spread(&c, 2).await;
    rows(&c, "DROP TABLE stock").await;
    assert_eq!(one(&c, count).await, "0");
    assert_eq!(refused(&c, "SELECT qty FROM stock").await.0, "42P01");
}
