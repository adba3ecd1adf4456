//! NewOrder and Payment with their hottest writes as late as what they mean allows (C5 §6.1): a district's next order number is drawn
//! after the stock was taken, a warehouse's and a district's sums are raised after the customer was.
//!
//! The rows, the results and the consistency conditions are those of `txn`; only the order inside the transaction differs.

use super::*;
use crate::kv::{Cell, End, KvTxn};

impl Tpcc {
    /// As [`Tpcc::new_order`], the district's row read and raised after the stock.
    pub fn new_order_late<T: KvTxn>(
        &self,
        txn: &mut T,
        params: &mut Params,
    ) -> Result<End, T::Error> {
        let p = &params.new_order;
        let (w, d) = (Cell::Int(p.warehouse), Cell::Int(p.district));
        let discount = txn
            .get(CUSTOMER, &[w, d, Cell::Int(p.customer)], |row| {
                std::hint::black_box((row.text(5).len(), row.text(13).len()));
                row.int(15)
            })?
            .expect("a customer");
        let mut lines: [(i64, String); 16] = Default::default();
        for (line, &(item, supply, quantity)) in lines.iter_mut().zip(&p.lines) {
            let Some(price) = txn.get(ITEM, &[Cell::Int(item)], |row| {
                std::hint::black_box((row.text(2).len(), row.text(4).len()));
                row.int(3)
            })?
            else {
                return Ok(End::Rollback);
            };
            let key = [Cell::Int(supply), Cell::Int(item)];
            let (left, ytd, orders, remote) = txn
                .get(STOCK, &key, |row| {
                    line.1.push_str(row.text(2 + p.district as usize));
                    (row.int(2), row.int(13), row.int(14), row.int(15))
                })?
                .expect("stock of every item");
            line.0 = quantity * price;
            let left = if left >= quantity + 10 {
                left - quantity
            } else {
                left - quantity + 91
            };
            let remote = remote + i64::from(supply != p.warehouse);
            txn.update(
                STOCK,
                &key,
                &[
                    (2, Cell::Int(left)),
                    (13, Cell::Int(ytd + quantity)),
                    (14, Cell::Int(orders + 1)),
                    (15, Cell::Int(remote)),
                ],
            )?;
        }
        let w_tax = txn
            .get(WAREHOUSE, &[w], |row| row.int(7))?
            .expect("a warehouse");
        let (d_tax, order) = txn
            .get(DISTRICT, &[w, d], |row| (row.int(8), row.int(10)))?
            .expect("a district");
        txn.update(DISTRICT, &[w, d], &[(10, Cell::Int(order + 1))])?;
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
        for (number, (&(item, supply, quantity), (amount, text))) in
            p.lines.iter().zip(&lines).enumerate()
        {
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
                    Cell::Int(*amount),
                    Cell::Text(text),
                ],
            )?;
        }
        let total = total * (10_000 - discount) / 10_000 * (10_000 + w_tax + d_tax) / 10_000;
        std::hint::black_box(total);
        Ok(End::Commit)
    }

    /// As [`Tpcc::payment`], the warehouse's and the district's rows read and raised after the customer's.
    pub fn payment_late<T: KvTxn>(
        &self,
        txn: &mut T,
        params: &mut Params,
    ) -> Result<End, T::Error> {
        let (p, text) = (&params.payment, &mut params.text);
        let number = self.pay_customer(txn, p, text)?;
        let names = self.pay_house(txn, p)?;
        self.pay_history(txn, p, number, &names)
    }
}
