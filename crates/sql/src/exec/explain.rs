//! EXPLAIN as a run: for ANALYZE the statement inside runs first, and its operators count.

use super::{ExecContext, Go, RowStore};
use crate::plan::Prepared;
use crate::plan::explain::{Explained, count_nodes};
use crate::plan::node::Explain;
use base::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use txn::{TableHandle, Txn};

/// The rows of the answer.
pub(super) fn run(
    inner: &Arc<Prepared>,
    options: Explain,
    planning: Duration,
    params: &[Value],
    txn: &mut Txn,
    cx: &ExecContext<'_>,
) -> txn::Result<RowStore> {
    let mut actual = None;
    let from = Instant::now();
    if options.analyze {
        let mut e = inner.start(params.to_vec());
        let (count, starts) = count_nodes(&inner.plan);
        e.count_nodes(count, starts);
        while e.for_each_row(txn, cx, 0, &mut |_| Ok(Go::On))? {}
        actual = e.take_stats().map(|s| (s, from.elapsed()));
    }
    let rows = |t: &TableHandle| txn.estimated_rows(t);
    let explained = Explained {
        plan: &inner.plan,
        options,
        rows: &rows,
        actual: actual.as_ref().map(|(s, _)| &s.nodes[..]),
        planning,
        execution: actual.as_ref().map(|(_, t)| *t),
    };
    let mut out = RowStore::new(1);
    match options.json {
        true => out.add(vec![Value::Json(explained.json().into())]),
        false => {
            let lines = explained.text().into_iter();
            lines.for_each(|l| out.add(vec![Value::from(l)]));
        }
    }
    Ok(out)
}
