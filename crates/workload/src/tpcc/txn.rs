//! The two transactions: parameters drawn ahead, so that running again runs the same one.

use super::*;
use crate::kv::{Cell, End, KvTxn, RowView};
use crate::rng::Rng;
use std::fmt::Write;

/// Parameters of one transaction and its scratch space; reused from one to the next.
#[derive(Clone, Debug, Default)]
pub struct Params {
    pub new_order: NewOrder,
    pub payment: Payment,
    pub(super) text: String,
}

/// Clause 2.4.1.
#[derive(Clone, Debug, Default)]
pub struct NewOrder {
    pub warehouse: i64,
    pub district: i64,
    pub customer: i64,
    /// Item, supplying warehouse, quantity. Item 0 does not exist: the order is rolled back.
    pub lines: Vec<(i64, i64, i64)>,
    pub now: i64,
}

/// Clause 2.5.1.
#[derive(Clone, Debug, Default)]
pub struct Payment {
    pub warehouse: i64,
    pub district: i64,
    pub customer_warehouse: i64,
    pub customer_district: i64,
    /// By number, or, when 0, by `last_name`.
    pub customer: i64,
    pub last_name: String,
    pub amount: i64,
    pub now: i64,
}

impl Tpcc {
    fn other_warehouse(&self, rng: &mut Rng, home: i64) -> i64 {
        if self.warehouses == 1 {
            return home;
        }
        (home - 1 + rng.between(1, self.warehouses - 1)) % self.warehouses + 1
    }

    /// Draws a NewOrder at `warehouse`. `now` is microseconds.
    pub fn draw_new_order(&self, rng: &mut Rng, warehouse: i64, now: i64, params: &mut Params) {
        let p = &mut params.new_order;
        (p.warehouse, p.now) = (warehouse, now);
        p.district = rng.between(1, self.districts);
        p.customer = self.draw_customer(rng);
        p.lines.clear();
        for _ in 0..rng.between(5, 15) {
            let supply = if rng.percent(1) {
                self.other_warehouse(rng, warehouse)
            } else {
                warehouse
            };
            p.lines
                .push((self.draw_item(rng), supply, rng.between(1, 10)));
        }
        if rng.percent(1) {
            p.lines.last_mut().expect("at least five lines").0 = 0;
        }
    }

    /// Draws a Payment at `warehouse`. `now` is microseconds.
    pub fn draw_payment(&self, rng: &mut Rng, warehouse: i64, now: i64, params: &mut Params) {
        let p = &mut params.payment;
        (p.warehouse, p.now) = (warehouse, now);
        p.district = rng.between(1, self.districts);
        (p.customer_warehouse, p.customer_district) = if rng.percent(85) {
            (warehouse, p.district)
        } else {
            (
                self.other_warehouse(rng, warehouse),
                rng.between(1, self.districts),
            )
        };
        p.customer = if rng.percent(60) {
            0
        } else {
            self.draw_customer(rng)
        };
        last_name(self.draw_name(rng), &mut p.last_name);
        p.amount = rng.between(100, 500_000);
    }

    /// Runs the NewOrder in `params` (clause 2.4.2).
    pub fn new_order<T: KvTxn>(&self, txn: &mut T, params: &mut Params) -> Result<End, T::Error> {
        let (p, text) = (&params.new_order, &mut params.text);
        let (w, d) = (Cell::Int(p.warehouse), Cell::Int(p.district));
        let mut stock = [[Cell::Null; 2]; 16];
        let mut named = [&[][..]; 16];
        for (key, line) in stock.iter_mut().zip(&p.lines) {
            *key = [Cell::Int(line.1), Cell::Int(line.0)];
        }
        for (name, key) in named.iter_mut().zip(&stock) {
            *name = key;
        }
        txn.expect(STOCK, &named[..p.lines.len()]);
        for (name, key) in named.iter_mut().zip(&stock) {
            *name = &key[1..];
        }
        txn.expect(ITEM, &named[..p.lines.len()]);
        let w_tax = txn
            .get(WAREHOUSE, &[w], |row| row.int(7))?
            .expect("a warehouse");
        let (d_tax, order) = txn
            .get(DISTRICT, &[w, d], |row| (row.int(8), row.int(10)))?
            .expect("a district");
        txn.update(DISTRICT, &[w, d], &[(10, Cell::Int(order + 1))])?;
        let discount = txn
            .get(CUSTOMER, &[w, d, Cell::Int(p.customer)], |row| {
                // The terminal shows name and credit: read them as it would.
                std::hint::black_box((row.bytes(5), row.bytes(13)));
                row.int(15)
            })?
            .expect("a customer");
        let o = Cell::Int(order);
        let all_local = p.lines.iter().all(|line| line.1 == p.warehouse);
        txn.insert(
            ORDERS,
            &[
                w,
                d,
                o,
                Cell::Int(p.customer),
                Cell::Int(p.now),
                Cell::Null,
                Cell::Int(p.lines.len() as i64),
                Cell::Int(i64::from(all_local)),
            ],
        )?;
        txn.insert(NEW_ORDER, &[w, d, o])?;
        let mut total = 0;
        for (number, &(item, supply, quantity)) in p.lines.iter().enumerate() {
            let Some(price) = txn.get(ITEM, &[Cell::Int(item)], |row| {
                std::hint::black_box((row.bytes(2), row.bytes(4)));
                row.int(3)
            })?
            else {
                return Ok(End::Rollback);
            };
            let stock_key = [Cell::Int(supply), Cell::Int(item)];
            let (left, ytd, orders, remote) = txn
                .get(STOCK, &stock_key, |row| {
                    text.clear();
                    text.push_str(row.text(2 + p.district as usize));
                    (row.int(2), row.int(13), row.int(14), row.int(15))
                })?
                .expect("stock of every item");
            let left = if left >= quantity + 10 {
                left - quantity
            } else {
                left - quantity + 91
            };
            let remote = remote + i64::from(supply != p.warehouse);
            txn.update(
                STOCK,
                &stock_key,
                &[
                    (2, Cell::Int(left)),
                    (13, Cell::Int(ytd + quantity)),
                    (14, Cell::Int(orders + 1)),
                    (15, Cell::Int(remote)),
                ],
            )?;
            let amount = quantity * price;
            total += amount;
            txn.insert(
                ORDER_LINE,
                &[
                    w,
                    d,
                    o,
                    Cell::Int(number as i64 + 1),
                    Cell::Int(item),
                    Cell::Int(supply),
                    Cell::Null,
                    Cell::Int(quantity),
                    Cell::Int(amount),
                    Cell::Text(text),
                ],
            )?;
        }
        let total = total * (10_000 - discount) / 10_000 * (10_000 + w_tax + d_tax) / 10_000;
        std::hint::black_box(total);
        Ok(End::Commit)
    }

    /// Runs the Payment in `params` (clause 2.5.2).
    pub fn payment<T: KvTxn>(&self, txn: &mut T, params: &mut Params) -> Result<End, T::Error> {
        let (p, text) = (&params.payment, &mut params.text);
        let names = self.pay_house(txn, p)?;
        let number = self.pay_customer(txn, p, text)?;
        self.pay_history(txn, p, number, &names)
    }

    /// Raises the sums of warehouse and district; their names, joined.
    pub(super) fn pay_house<T: KvTxn>(&self, txn: &mut T, p: &Payment) -> Result<Names, T::Error> {
        let (w, d) = (Cell::Int(p.warehouse), Cell::Int(p.district));
        let mut names = [0u8; 24];
        if self.split {
            let name = |row: &dyn RowView| copy(row.text(1), &mut names[..10]);
            let w_len = txn.get(WAREHOUSE, &[w], name)?.expect("a warehouse");
            txn.add(WAREHOUSE, &[w], 8, p.amount)?;
            names[w_len..w_len + 4].copy_from_slice(b"    ");
            let name = |row: &dyn RowView| copy(row.text(2), &mut names[w_len + 4..w_len + 14]);
            let d_len = txn.get(DISTRICT, &[w, d], name)?.expect("a district");
            txn.add(DISTRICT, &[w, d], 9, p.amount)?;
            return Ok((names, w_len + 4 + d_len));
        }
        let (w_ytd, w_len) = txn
            .get(WAREHOUSE, &[w], |row| {
                (row.int(8), copy(row.text(1), &mut names[..10]))
            })?
            .expect("a warehouse");
        txn.update(WAREHOUSE, &[w], &[(8, Cell::Int(w_ytd + p.amount))])?;
        names[w_len..w_len + 4].copy_from_slice(b"    ");
        let (d_ytd, d_len) = txn
            .get(DISTRICT, &[w, d], |row| {
                (
                    row.int(9),
                    copy(row.text(2), &mut names[w_len + 4..w_len + 14]),
                )
            })?
            .expect("a district");
        txn.update(DISTRICT, &[w, d], &[(9, Cell::Int(d_ytd + p.amount))])?;
        Ok((names, w_len + 4 + d_len))
    }

    /// Charges the customer; his number.
    pub(super) fn pay_customer<T: KvTxn>(
        &self,
        txn: &mut T,
        p: &Payment,
        text: &mut String,
    ) -> Result<i64, T::Error> {
        let (cw, cd) = (
            Cell::Int(p.customer_warehouse),
            Cell::Int(p.customer_district),
        );
        let number = if p.customer != 0 {
            p.customer
        } else {
            self.by_name(txn, p)?
        };
        let key = [cw, cd, Cell::Int(number)];
        text.clear();
        let (balance, ytd, count, bad_credit) = txn
            .get(CUSTOMER, &key, |row| {
                let bad_credit = row.text(13) == "BC";
                if bad_credit {
                    let _ = write!(
                        text,
                        "{number} {} {} {} {} {} ",
                        p.customer_district,
                        p.customer_warehouse,
                        p.district,
                        p.warehouse,
                        p.amount
                    );
                    text.push_str(row.text(20));
                    text.truncate(500);
                }
                (row.int(16), row.int(17), row.int(18), bad_credit)
            })?
            .expect("a customer");
        let set = [
            (16, Cell::Int(balance - p.amount)),
            (17, Cell::Int(ytd + p.amount)),
            (18, Cell::Int(count + 1)),
            (20, Cell::Text(text)),
        ];
        txn.update(CUSTOMER, &key, if bad_credit { &set } else { &set[..3] })?;
        Ok(number)
    }

    /// Writes the payment down.
    pub(super) fn pay_history<T: KvTxn>(
        &self,
        txn: &mut T,
        p: &Payment,
        number: i64,
        names: &Names,
    ) -> Result<End, T::Error> {
        let names = &names.0[..names.1];
        txn.insert(
            HISTORY,
            &[
                Cell::Int(number),
                Cell::Int(p.customer_district),
                Cell::Int(p.customer_warehouse),
                Cell::Int(p.district),
                Cell::Int(p.warehouse),
                Cell::Int(p.now),
                Cell::Int(p.amount),
                Cell::Text(std::str::from_utf8(names).expect("names are ASCII")),
            ],
        )?;
        Ok(End::Commit)
    }

    /// The customer in the middle, by first name, of those with this last name.
    fn by_name<T: KvTxn>(&self, txn: &mut T, p: &Payment) -> Result<i64, T::Error> {
        let prefix = [
            Cell::Int(p.customer_warehouse),
            Cell::Int(p.customer_district),
            Cell::Text(&p.last_name),
        ];
        // A name has three customers on average; the most popular ones have about fifty.
        let (mut numbers, mut count) = ([0i64; 160], 0);
        txn.scan(CUSTOMER, CUSTOMER_BY_NAME, &prefix, |row| {
            numbers[count] = row.int(2);
            count += 1;
            count < numbers.len()
        })?;
        assert!(count > 0, "no customer is called {}", p.last_name);
        Ok(numbers[count.div_ceil(2) - 1])
    }
}

/// Names of warehouse and district, and how many bytes of the room they take.
pub(super) type Names = ([u8; 24], usize);

fn copy(from: &str, to: &mut [u8]) -> usize {
    to[..from.len()].copy_from_slice(from.as_bytes());
    from.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::mirror::{Mirror, Owned};

    fn loaded(tpcc: &Tpcc) -> (Mirror, Rng) {
        let mut db = Mirror::new(TABLES);
        let mut rng = Rng::new(11);
        for step in tpcc.load_steps() {
            tpcc.load(&mut db, &mut rng, 0, step).unwrap();
        }
        (db, rng)
    }

    const SMALL: Tpcc = Tpcc {
        warehouses: 2,
        districts: 2,
        customers: 30,
        items: 100,
        split: false,
    };

    #[test]
    fn the_load_has_the_right_sizes_and_is_consistent() {
        let (mut db, _) = loaded(&SMALL);
        let sizes: Vec<usize> = db.rows.iter().map(|t| t.len()).collect();
        assert_eq!(sizes[..8], [2, 4, 120, 120, 100, 200, 120, 36]);
        assert!((120 * 5..=120 * 15).contains(&sizes[8]));
        check(&mut db, &SMALL).unwrap().unwrap();
    }

    #[test]
    fn the_mix_keeps_the_conditions_and_rolls_back_one_in_a_hundred() {
        let (mut db, mut rng) = loaded(&SMALL);
        let mut params = Params::default();
        let mut rolled_back = 0;
        for i in 0..1000 {
            let warehouse = 1 + i % 2;
            if rng.percent(50) {
                SMALL.draw_new_order(&mut rng, warehouse, i, &mut params);
                let before = db.clone();
                if SMALL.new_order(&mut db, &mut params).unwrap() == End::Rollback {
                    db = before;
                    rolled_back += 1;
                }
            } else {
                SMALL.draw_payment(&mut rng, warehouse, i, &mut params);
                SMALL.payment(&mut db, &mut params).unwrap();
            }
        }
        check(&mut db, &SMALL).unwrap().unwrap();
        assert!((1..=15).contains(&rolled_back), "{rolled_back} rollbacks");
        assert!(db.rows[HISTORY].len() > 120 + 400);
    }

    #[test]
    fn a_lost_update_breaks_the_conditions() {
        let (mut db, _) = loaded(&SMALL);
        let key = vec![Owned::Int(1), Owned::Int(2)];
        db.rows[DISTRICT].get_mut(&key).unwrap()[10] = Owned::Int(30);
        assert!(check(&mut db, &SMALL).unwrap().is_err());
        db.rows[DISTRICT].get_mut(&key).unwrap()[10] = Owned::Int(31);
        db.rows[DISTRICT].get_mut(&key).unwrap()[9] = Owned::Int(1);
        assert!(check(&mut db, &SMALL).unwrap().is_err());
    }

    #[test]
    fn names_are_the_specification_s() {
        let mut name = String::new();
        last_name(371, &mut name);
        assert_eq!(name, "PRICALLYOUGHT");
        last_name(40, &mut name);
        assert_eq!(name, "BARPRESBAR");
    }
}
