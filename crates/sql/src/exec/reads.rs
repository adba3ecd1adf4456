//! What a run will read, with its parameters: asked by a replica before the run.

use super::point;
use crate::plan::Prepared;
use crate::reading::Touch;
use base::{RelId, Value};

impl Prepared {
    /// Whether values of it come from queries of their own.
    pub fn has_subqueries(&self) -> bool {
        !self.plan.subplans.is_empty()
    }

    /// What it reads, as a replica asks for it: one row, where these parameters say which.
    pub fn touching(&self, params: &[Value]) -> Vec<Touch> {
        if let Some(p) = &self.plan.point {
            let row = self.point_key(params);
            let mut all: Vec<Touch> = row.map(|(t, k)| Touch::Row(t, k)).into_iter().collect();
            if !all.is_empty() {
                // The further records of its split values are changed without a change of the row.
                let further = p.scan.handle().storages().skip(1);
                all.extend(further.map(Touch::Table));
            }
            return all;
        }
        let t = self.touches();
        let mut all: Vec<Touch> = t.tables.iter().map(|t| Touch::Table(*t)).collect();
        // Plans are made with the schema at the statement's position, so catalog relations need no second question.
        if t.unversioned {
            all.push(Touch::All);
        }
        all
    }

    /// The storage and the encoded primary key that a read of one row by its key looks up, with these parameters. `None`: it reads more
    /// than that, or the key is one that no row can have.
    pub fn point_key(&self, params: &[Value]) -> Option<(RelId, Box<[u8]>)> {
        let p = self.plan.point.as_ref()?;
        let mut key = Vec::new();
        point::key_of(p, params, &mut key)
            .ok()?
            .then(|| (p.scan.handle().storage.id, key.into()))
    }
}
