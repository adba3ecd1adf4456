//! TPC-C over the wire: NewOrder and Payment by turns, as `workload::tpcc` runs them, each statement sent when the answer to the one before has come.
//!
//! A client is a terminal of a warehouse, and warehouses are dealt out by place. What one client does in a round is the same on every way,
//! as far as it comes. A transaction that is told to try again is tried again as it was, and counts once. One NewOrder in a hundred rolls
//! back, as the specification has it.
//!
//! The tables are smaller than the specification's, so that every follower of a small machine has them: [`sizes`].
//!
//! Left out on purpose: think times; OrderStatus, Delivery and StockLevel, which `workload` has not.

use crate::Result;
use crate::bench::loads::PEER;
use crate::server::Server;
use crate::wire::{Connection, Error};
use workload::kv::End;
use workload::rng::Rng;
use workload::tpcc::{Params, TABLES, Tpcc, check};

use super::measure::{Done, Load};
use super::wire_kv::{Wire, create};

pub fn sizes(warehouses: usize) -> Tpcc {
    Tpcc {
        customers: 60,
        items: 1000,
        ..Tpcc::new(warehouses as i64)
    }
}

/// Fills the tables of these servers anew, all alike, at once.
pub fn prepare(servers: &[&Server], tpcc: &Tpcc) -> Result<()> {
    println!("filling {} warehouses", tpcc.warehouses);
    let fill = |server: &Server| -> std::result::Result<(), Error> {
        let mut c = server.connect()?;
        let names: Vec<&str> = TABLES.iter().map(|t| t.name).collect();
        c.query(&format!("DROP TABLE IF EXISTS {}", names.join(", ")))?;
        for statement in create(TABLES) {
            c.query(&statement)?;
        }
        let mut rng = Rng::new(7);
        for step in tpcc.load_steps() {
            let mut wire = Wire::filling(&mut c, TABLES);
            tpcc.load(&mut wire, &mut rng, 0, step)?;
            wire.flush()?;
        }
        if server.name == PEER {
            c.query("VACUUM ANALYZE")?;
            c.query("CHECKPOINT")?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let fill = &fill;
        let filling = servers.iter().map(|&s| scope.spawn(move || fill(s)));
        let all: Vec<_> = filling.collect();
        for (server, filled) in servers.iter().zip(all) {
            let filled = filled.join().map_err(|_| "a thread that fills panicked")?;
            filled.map_err(|e| format!("{}: {e}", server.name))?;
        }
        Ok(())
    })
}

/// The specification's consistency conditions 1 to 3.
pub fn check_at(server: &Server, tpcc: &Tpcc) -> Result<()> {
    let look = || -> std::result::Result<_, Error> {
        let mut c = server.connect()?;
        c.query("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
        let found = check(&mut Wire::new(&mut c, TABLES), tpcc)?;
        c.query("COMMIT")?;
        Ok(found)
    };
    let found = look().map_err(|e| format!("{}: {e}", server.name))?;
    found.map_err(|e| format!("{}: TPC-C's conditions do not hold: {e}", server.name))
}

#[derive(Clone, Copy)]
enum Kind {
    NewOrder,
    Payment,
}

pub struct Terminal {
    tpcc: Tpcc,
    warehouse: usize,
    rng: Rng,
    params: Params,
    begin: String,
    /// Pairs of transactions so far; it stands for the time.
    pairs: i64,
}

impl Terminal {
    pub fn new(tpcc: &Tpcc, warehouse: usize, round: usize, level: &str) -> Terminal {
        Terminal {
            tpcc: *tpcc,
            warehouse,
            rng: Rng::new(((round as u64) << 32) | warehouse as u64),
            params: Params::default(),
            begin: format!("BEGIN ISOLATION LEVEL {level}"),
            pairs: 0,
        }
    }

    fn once(
        &mut self,
        kind: Kind,
        c: &mut Connection,
        done: &mut Done,
    ) -> std::result::Result<(), Error> {
        c.query(&self.begin)?;
        let mut wire = Wire::new(c, TABLES);
        let end = match kind {
            Kind::NewOrder => self.tpcc.new_order(&mut wire, &mut self.params)?,
            Kind::Payment => self.tpcc.payment(&mut wire, &mut self.params)?,
        };
        match end {
            End::Commit => done.commit(c),
            End::Rollback => c.query("ROLLBACK").map(drop),
        }
    }
}

impl Load for Terminal {
    fn unit(&mut self, c: &mut Connection, done: &mut Done) -> std::result::Result<(), Error> {
        self.pairs += 1;
        let (home, now) = (self.warehouse as i64, self.pairs);
        let (tpcc, rng, params) = (self.tpcc, &mut self.rng, &mut self.params);
        tpcc.draw_new_order(rng, home, now, params);
        tpcc.draw_payment(rng, home, now, params);
        for (kind, name) in [(Kind::NewOrder, "NewOrder"), (Kind::Payment, "Payment")] {
            while let Err(e) = self.once(kind, c, done) {
                done.has_lost(name, e)?;
                c.query("ROLLBACK")?;
            }
            done.transactions += 1;
        }
        Ok(())
    }
}
