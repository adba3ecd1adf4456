//! EXPLAIN as a run: for ANALYZE the statement inside runs first, and its operators count.

use super::{ExecContext, Go, RowStore};
use crate::plan::Prepared;
use crate::plan::explain::{self, Options};
use base::Value;
use std::sync::Arc;
use std::time::Instant;
use txn::Txn;

/// Runs an EXPLAIN: the rows of its answer.
pub(super) fn run(
    inner: &Arc<Prepared>,
    o: Options,
    params: &[Value],
    txn: &mut Txn,
    cx: &ExecContext<'_>,
) -> txn::Result<RowStore> {
    let mut actual = None;
    let from = Instant::now();
    if o.analyze {
        let mut e = inner.start(params.to_vec());
        let (count, starts) = explain::count_nodes(&inner.plan);
        e.count_nodes(count, starts);
        while e.for_each_row(txn, cx, 0, &mut |_| Ok(Go::On))? {}
        actual = e.take_stats().map(|s| (s, from.elapsed()));
    }
    let nodes = actual.as_ref().map(|(s, _)| &s.nodes[..]);
    let took = actual.as_ref().map(|(_, t)| *t);
    let mut out = RowStore::new(1);
    if o.json {
        out.add(vec![Value::Json(
            explain::json(&inner.plan, nodes, took).into(),
        )]);
    } else {
        for l in explain::text(&inner.plan, nodes, took) {
            out.add(vec![Value::from(l)]);
        }
    }
    Ok(out)
}
