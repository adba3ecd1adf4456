//! Aggregates.

use super::Accumulator;
use super::registry::{Registry, names::*};
use base::{Result, Value};

/// Adds every aggregate.
pub(super) fn register(r: &mut Registry) {
    r.agg("count", &[], INT8, |_, _| {
        Box::new(Count { n: 0, all: true })
    });
    r.agg("count", &[ANY], INT8, |_, _| {
        Box::new(Count { n: 0, all: false })
    });
}

struct Count {
    n: i64,
    all: bool,
}

impl Accumulator for Count {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        self.n += i64::from(self.all || !args[0].is_null());
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(Value::Int8(self.n))
    }
}
