//! An order: BEGIN, a look at the customer, five items each read and changed, a line in a table of orders, COMMIT; 14 statements, each sent
//! when the answer to the one before has come. Clients meet no others: items are dealt out by place and client.
//!
//! Left out on purpose: orders that contend.

use crate::Result;
use crate::server::Server;
use crate::wire::{Connection, Error};

use super::measure::{Done, Load};

/// Items of one client.
pub const ITEMS: usize = 100;

pub fn prepare(servers: &[&Server], clients: usize) -> Result<()> {
    let most = clients * ITEMS;
    let tables = format!(
        "DROP TABLE IF EXISTS shop_customer, shop_stock, shop_order;
         CREATE TABLE shop_customer (id int PRIMARY KEY, name text NOT NULL);
         CREATE TABLE shop_stock (id int PRIMARY KEY, qty int NOT NULL);
         CREATE TABLE shop_order (c int, n int, items int NOT NULL, PRIMARY KEY (c, n));
         INSERT INTO shop_customer SELECT n, 'customer ' || n FROM generate_series(0, {most}) n;
         INSERT INTO shop_stock SELECT n, 1000000 FROM generate_series(0, {most}) n"
    );
    servers.iter().try_for_each(|s| s.sql(&tables).map(drop))
}

pub struct Orders {
    pub level: String,
    /// The first of the client's items.
    pub base: usize,
    /// Of its last order. No number is given twice to a client.
    pub number: usize,
}

/// The statements of one order but for COMMIT: `base` is the first of the client's items, `n` the number of the order.
fn order(level: &str, base: usize, n: usize) -> Vec<String> {
    let customer = base + n % ITEMS;
    let mut all = vec![
        format!("BEGIN ISOLATION LEVEL {level}"),
        format!("SELECT name FROM shop_customer WHERE id = {customer}"),
    ];
    for i in 0..5 {
        // Apart from one another, so that an order has five items.
        let item = base + (n * 7 + i * (ITEMS / 5)) % ITEMS;
        all.push(format!("SELECT qty FROM shop_stock WHERE id = {item}"));
        all.push(format!(
            "UPDATE shop_stock SET qty = qty - 1 WHERE id = {item}"
        ));
    }
    all.push(format!("INSERT INTO shop_order VALUES ({base}, {n}, 5)"));
    all
}

impl Load for Orders {
    fn unit(&mut self, c: &mut Connection, done: &mut Done) -> std::result::Result<(), Error> {
        self.number += 1;
        let statements = order(&self.level, self.base, self.number);
        let ran = statements.iter().try_for_each(|s| c.query(s).map(drop));
        match ran.and_then(|()| done.commit(c)) {
            Ok(()) => done.transactions += 1,
            Err(e) => {
                done.has_lost("order", e)?;
                c.query("ROLLBACK")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_five_items_of_its_client() {
        let all = order("serializable", 300, 4);
        assert_eq!(all.len() + 1, 14);
        let items = all.iter().filter(|s| s.starts_with("UPDATE"));
        let items: std::collections::HashSet<_> = items.collect();
        assert_eq!(items.len(), 5);
        assert!(items.iter().all(|s| s.contains("id = 3")));
    }
}
