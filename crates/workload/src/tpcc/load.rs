//! Loading TPC-C in steps that each fit one transaction, and the consistency conditions.

use super::*;
use crate::kv::{Cell, KvTxn};
use crate::rng::Rng;

const STEP_ROWS: i64 = 2000;

/// One transaction of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Items {
        from: i64,
        to: i64,
    },
    Stock {
        warehouse: i64,
        from: i64,
        to: i64,
    },
    Warehouse {
        warehouse: i64,
    },
    Customers {
        warehouse: i64,
        district: i64,
        from: i64,
        to: i64,
    },
    Orders {
        warehouse: i64,
        district: i64,
        from: i64,
        to: i64,
    },
}

fn chunks(last: i64, rows: i64) -> impl Iterator<Item = (i64, i64)> {
    (1..=last)
        .step_by(rows as usize)
        .map(move |from| (from, (from + rows - 1).min(last)))
}

impl Tpcc {
    /// The steps that load everything, in an order that respects the references.
    pub fn load_steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = chunks(self.items, STEP_ROWS)
            .map(|(from, to)| Step::Items { from, to })
            .collect();
        for warehouse in 1..=self.warehouses {
            steps.push(Step::Warehouse { warehouse });
            steps.extend(chunks(self.items, STEP_ROWS).map(|(from, to)| Step::Stock {
                warehouse,
                from,
                to,
            }));
            for district in 1..=self.districts {
                steps.extend(
                    chunks(self.customers, STEP_ROWS).map(|(from, to)| Step::Customers {
                        warehouse,
                        district,
                        from,
                        to,
                    }),
                );
                steps.extend(chunks(self.customers, STEP_ROWS / 10).map(|(from, to)| {
                    Step::Orders {
                        warehouse,
                        district,
                        from,
                        to,
                    }
                }));
            }
        }
        steps
    }

    /// Runs one step. `now` is microseconds.
    pub fn load<T: KvTxn>(
        &self,
        txn: &mut T,
        rng: &mut Rng,
        now: i64,
        step: Step,
    ) -> Result<(), T::Error> {
        match step {
            Step::Items { from, to } => self.load_items(txn, rng, from, to),
            Step::Stock {
                warehouse,
                from,
                to,
            } => self.load_stock(txn, rng, warehouse, from, to),
            Step::Warehouse { warehouse } => self.load_warehouse(txn, rng, warehouse),
            Step::Customers {
                warehouse,
                district,
                from,
                to,
            } => self.load_customers(txn, rng, now, [warehouse, district], from, to),
            Step::Orders {
                warehouse,
                district,
                from,
                to,
            } => self.load_orders(txn, rng, now, [warehouse, district], from, to),
        }
    }

    fn load_items<T: KvTxn>(
        &self,
        txn: &mut T,
        rng: &mut Rng,
        from: i64,
        to: i64,
    ) -> Result<(), T::Error> {
        let (mut name, mut data) = (Filler::new(), Filler::new());
        for item in from..=to {
            txn.insert(
                ITEM,
                &[
                    Cell::Int(item),
                    Cell::Int(rng.between(1, 10_000)),
                    name.text(rng, 14, 24),
                    Cell::Int(rng.between(100, 10_000)),
                    data.data(rng, 26, 50),
                ],
            )?;
        }
        Ok(())
    }

    fn load_stock<T: KvTxn>(
        &self,
        txn: &mut T,
        rng: &mut Rng,
        warehouse: i64,
        from: i64,
        to: i64,
    ) -> Result<(), T::Error> {
        let mut dist: [Filler; 10] = std::array::from_fn(|_| Filler::new());
        let mut data = Filler::new();
        for item in from..=to {
            let mut row = [Cell::Int(0); 17];
            row[0] = Cell::Int(warehouse);
            row[1] = Cell::Int(item);
            row[2] = Cell::Int(rng.between(10, 100));
            for (cell, filler) in row[3..13].iter_mut().zip(&mut dist) {
                *cell = filler.text(rng, 24, 24);
            }
            row[16] = data.data(rng, 26, 50);
            txn.insert(STOCK, &row)?;
        }
        Ok(())
    }

    /// The warehouse and its districts.
    fn load_warehouse<T: KvTxn>(
        &self,
        txn: &mut T,
        rng: &mut Rng,
        warehouse: i64,
    ) -> Result<(), T::Error> {
        let mut f: [Filler; 6] = std::array::from_fn(|_| Filler::new());
        let [name, street_1, street_2, city, state, zip] = &mut f;
        txn.insert(
            WAREHOUSE,
            &[
                Cell::Int(warehouse),
                name.text(rng, 6, 10),
                street_1.text(rng, 10, 20),
                street_2.text(rng, 10, 20),
                city.text(rng, 10, 20),
                state.text(rng, 2, 2),
                zip.text(rng, 9, 9),
                Cell::Int(rng.between(0, 2000)),
                Cell::Int(3_000_000 * self.districts),
            ],
        )?;
        for district in 1..=self.districts {
            txn.insert(
                DISTRICT,
                &[
                    Cell::Int(warehouse),
                    Cell::Int(district),
                    name.text(rng, 6, 10),
                    street_1.text(rng, 10, 20),
                    street_2.text(rng, 10, 20),
                    city.text(rng, 10, 20),
                    state.text(rng, 2, 2),
                    zip.text(rng, 9, 9),
                    Cell::Int(rng.between(0, 2000)),
                    Cell::Int(3_000_000),
                    Cell::Int(self.customers + 1),
                ],
            )?;
        }
        Ok(())
    }

    fn load_customers<T: KvTxn>(
        &self,
        txn: &mut T,
        rng: &mut Rng,
        now: i64,
        [warehouse, district]: [i64; 2],
        from: i64,
        to: i64,
    ) -> Result<(), T::Error> {
        let mut last = String::new();
        let mut f: [Filler; 8] = std::array::from_fn(|_| Filler::new());
        let [first, street_1, street_2, city, state, zip, phone, data] = &mut f;
        for customer in from..=to {
            let number = if customer <= 1000 {
                customer - 1
            } else {
                self.draw_name(rng)
            };
            last_name(number, &mut last);
            txn.insert(
                CUSTOMER,
                &[
                    Cell::Int(warehouse),
                    Cell::Int(district),
                    Cell::Int(customer),
                    first.text(rng, 8, 16),
                    Cell::Text("OE"),
                    Cell::Text(&last),
                    street_1.text(rng, 10, 20),
                    street_2.text(rng, 10, 20),
                    city.text(rng, 10, 20),
                    state.text(rng, 2, 2),
                    zip.text(rng, 9, 9),
                    phone.text(rng, 16, 16),
                    Cell::Int(now),
                    Cell::Text(if rng.percent(10) { "BC" } else { "GC" }),
                    Cell::Int(5_000_000),
                    Cell::Int(rng.between(0, 5000)),
                    Cell::Int(-1000),
                    Cell::Int(1000),
                    Cell::Int(1),
                    Cell::Int(0),
                    data.text(rng, 300, 500),
                ],
            )?;
            txn.insert(
                HISTORY,
                &[
                    Cell::Int(customer),
                    Cell::Int(district),
                    Cell::Int(warehouse),
                    Cell::Int(district),
                    Cell::Int(warehouse),
                    Cell::Int(now),
                    Cell::Int(1000),
                    phone.text(rng, 12, 24),
                ],
            )?;
        }
        Ok(())
    }

    /// Orders with their lines; the newest 30 % are not yet delivered. The customers of a
    /// district are dealt out to its orders by a fixed permutation, one order each.
    fn load_orders<T: KvTxn>(
        &self,
        txn: &mut T,
        rng: &mut Rng,
        now: i64,
        [warehouse, district]: [i64; 2],
        from: i64,
        to: i64,
    ) -> Result<(), T::Error> {
        let mut dist = Filler::new();
        let undelivered = self.customers - self.customers * 3 / 10 + 1;
        // 1,999 is prime: its multiples visit every residue of any count that is not one of them.
        let step = if self.customers % 1999 == 0 { 1 } else { 1999 };
        for order in from..=to {
            let lines = rng.between(5, 15);
            let open = order >= undelivered;
            txn.insert(
                ORDERS,
                &[
                    Cell::Int(warehouse),
                    Cell::Int(district),
                    Cell::Int(order),
                    Cell::Int(order * step % self.customers + 1),
                    Cell::Int(now),
                    if open {
                        Cell::Null
                    } else {
                        Cell::Int(rng.between(1, 10))
                    },
                    Cell::Int(lines),
                    Cell::Int(1),
                ],
            )?;
            if open {
                let key = [Cell::Int(warehouse), Cell::Int(district), Cell::Int(order)];
                txn.insert(NEW_ORDER, &key)?;
            }
            for line in 1..=lines {
                let amount = if open { rng.between(1, 999_999) } else { 0 };
                txn.insert(
                    ORDER_LINE,
                    &[
                        Cell::Int(warehouse),
                        Cell::Int(district),
                        Cell::Int(order),
                        Cell::Int(line),
                        Cell::Int(rng.between(1, self.items)),
                        Cell::Int(warehouse),
                        if open { Cell::Null } else { Cell::Int(now) },
                        Cell::Int(5),
                        Cell::Int(amount),
                        dist.text(rng, 24, 24),
                    ],
                )?;
            }
        }
        Ok(())
    }
}

/// Random text of a random length, in a buffer of its own.
struct Filler([u8; 500]);

impl Filler {
    fn new() -> Filler {
        Filler([b' '; 500])
    }

    fn text(&mut self, rng: &mut Rng, low: i64, high: i64) -> Cell<'_> {
        let len = rng.between(low, high) as usize;
        rng.fill_text(&mut self.0[..len]);
        Cell::Text(std::str::from_utf8(&self.0[..len]).expect("the generator makes ASCII"))
    }

    /// As `text`, with "ORIGINAL" somewhere in one of ten.
    fn data(&mut self, rng: &mut Rng, low: i64, high: i64) -> Cell<'_> {
        let len = rng.between(low, high) as usize;
        rng.fill_text(&mut self.0[..len]);
        if rng.percent(10) {
            let at = rng.below(len as u64 - 7) as usize;
            self.0[at..at + 8].copy_from_slice(b"ORIGINAL");
        }
        Cell::Text(std::str::from_utf8(&self.0[..len]).expect("the generator makes ASCII"))
    }
}

/// Consistency conditions 1 to 3 of clause 3.3.2, for every warehouse, on one snapshot.
pub fn check<T: KvTxn>(txn: &mut T, tpcc: &Tpcc) -> Result<Result<(), String>, T::Error> {
    for warehouse in 1..=tpcc.warehouses {
        let key = [Cell::Int(warehouse)];
        let Some(ytd) = txn.get(WAREHOUSE, &key, |row| row.int(8))? else {
            return Ok(Err(format!("warehouse {warehouse} is missing")));
        };
        let mut districts = Vec::new();
        txn.scan(DISTRICT, 0, &key, |row| {
            districts.push((row.int(1), row.int(9), row.int(10)));
            true
        })?;
        let sum: i64 = districts.iter().map(|d| d.1).sum();
        if ytd != sum {
            return Ok(Err(format!(
                "warehouse {warehouse}: w_ytd {ytd}, sum of d_ytd {sum}"
            )));
        }
        for (district, _, next) in districts {
            let key = [Cell::Int(warehouse), Cell::Int(district)];
            let (mut orders, mut last) = (0, 0);
            txn.scan(ORDERS, 0, &key, |row| {
                orders += 1;
                last = row.int(2);
                true
            })?;
            if last != next - 1 || orders != last {
                return Ok(Err(format!(
                    "district {warehouse}/{district}: {orders} orders, the last {last}, next {next}"
                )));
            }
            let (mut open, mut first) = (0, 0);
            txn.scan(NEW_ORDER, 0, &key, |row| {
                if open == 0 {
                    first = row.int(2);
                }
                open += 1;
                true
            })?;
            if open > 0 && first + open != next {
                return Ok(Err(format!(
                    "district {warehouse}/{district}: {open} open orders from {first}, next {next}"
                )));
            }
        }
    }
    Ok(Ok(()))
}
