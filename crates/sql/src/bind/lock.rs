//! FOR UPDATE, NO KEY UPDATE, SHARE, KEY SHARE.

use super::Binder;
use super::syntax::lock_words;
use crate::logical::{From, LockTarget, TableRef};
use base::schema::privilege;
use base::{Error, Result, SqlState};
use sqlparser::ast::{LockClause, NonBlock};
use txn::WaitPolicy;

impl Binder<'_> {
    /// Gives the tables that are to be locked a slot for their rows' keys.
    pub(super) fn lock_targets(
        &mut self,
        clauses: &[LockClause],
        items: &mut [From],
    ) -> Result<Vec<LockTarget>> {
        let mut out: Vec<LockTarget> = Vec::new();
        for c in clauses {
            let (mode, of) = lock_words(c);
            let wait = match c.nonblock {
                None => WaitPolicy::Wait,
                Some(NonBlock::Nowait) => WaitPolicy::NoWait,
                Some(NonBlock::SkipLocked) => WaitPolicy::SkipLocked,
            };
            let mut hit = vec![false; of.len()];
            let mut found: Vec<LockTarget> = Vec::new();
            for i in items.iter_mut() {
                self.lock_in(i, false, &of, &mut hit, &mut |t, handle, key_slot| {
                    t.skips |= wait == WaitPolicy::SkipLocked;
                    found.push(LockTarget {
                        handle,
                        key_slot,
                        mode,
                        wait,
                    });
                })?;
            }
            if let Some(missing) = hit.iter().position(|h| !h) {
                return Err(Error::new(
                    SqlState::UNDEFINED_TABLE,
                    format!(
                        "relation \"{}\" in FOR UPDATE clause not found in FROM clause",
                        of[missing]
                    ),
                ));
            }
            for f in found {
                match out.iter_mut().find(|o| o.key_slot == f.key_slot) {
                    Some(o) => o.mode = o.mode.join(f.mode),
                    None => out.push(f),
                }
            }
        }
        Ok(out)
    }

    fn lock_in(
        &mut self,
        item: &mut From,
        nullable: bool,
        of: &[String],
        hit: &mut [bool],
        put: &mut dyn FnMut(&mut TableRef, std::sync::Arc<txn::TableHandle>, u32),
    ) -> Result<()> {
        match item {
            From::Table(t) => {
                let named = of.iter().position(|n| *n == t.alias);
                if !of.is_empty() && named.is_none() {
                    return Ok(());
                }
                if let Some(n) = named {
                    hit[n] = true;
                }
                if nullable {
                    return Err(Error::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "FOR UPDATE cannot be applied to the nullable side of an outer join",
                    ));
                }
                // The role that locks needs the right on the outermost view, each view's owner on what stands in it.
                let mut view = 0;
                for &inner in &*t.views {
                    self.need_in(view, inner, privilege::UPDATE);
                    view = inner;
                }
                self.need_in(view, t.table.def.id, privilege::UPDATE);
                let slot = match t.key_slot {
                    Some(s) => s,
                    None => {
                        let s = self.slot(format!("{}.key", t.alias));
                        self.used[s as usize] = true;
                        t.key_slot = Some(s);
                        s
                    }
                };
                if let Some(h) = t.handle.clone() {
                    put(t, h, slot);
                }
                Ok(())
            }
            From::Inner { items, .. } => {
                for i in items {
                    self.lock_in(i, nullable, of, hit, put)?;
                }
                Ok(())
            }
            From::Left { left, right, .. } => {
                self.lock_in(left, nullable, of, hit, put)?;
                self.lock_in(right, true, of, hit, put)
            }
            From::Full { left, right, .. } => {
                self.lock_in(left, true, of, hit, put)?;
                self.lock_in(right, true, of, hit, put)
            }
            From::Virtual { .. } | From::Function(_) | From::Cte { .. } | From::Rel { .. } => {
                Ok(())
            }
        }
    }
}
