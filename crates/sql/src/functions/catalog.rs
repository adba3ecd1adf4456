//! Functions that look into the catalog: psql and the drivers call them. Only their signatures stand here; the session
//! answers by name ([`super::SessionContext::catalog_function`]).

use super::registry::{Registry, names::*};
use super::signature::Sig;
use base::Value;

macro_rules! lookups {
    ($r:ident; $($n:literal [$($arg:ident),*] $ret:ident;)*) => { $(
        $r.lookup($n, &[$($arg),*], $ret, |a, t, c| c.session.catalog_function($n, t, a));
    )* };
}

/// The inquiries of what a role may do with an object.
fn privileges(r: &mut Registry) {
    for ty in [TEXT, OID] {
        lookups! { r;
            "has_table_privilege" [ty, TEXT] BOOL;
            "has_schema_privilege" [ty, TEXT] BOOL;
            "has_database_privilege" [ty, TEXT] BOOL;
            "has_sequence_privilege" [ty, TEXT] BOOL;
            "has_function_privilege" [ty, TEXT] BOOL;
            "has_type_privilege" [ty, TEXT] BOOL;
            "has_language_privilege" [ty, TEXT] BOOL;
            "has_any_column_privilege" [ty, TEXT] BOOL;
            "has_tablespace_privilege" [ty, TEXT] BOOL;
            "has_foreign_data_wrapper_privilege" [ty, TEXT] BOOL;
            "has_server_privilege" [ty, TEXT] BOOL;
        }
        for user in [NAME, OID] {
            with_user(r, user, ty);
        }
        for column in [TEXT, INT2] {
            lookups! { r;
                "has_column_privilege" [ty, column, TEXT] BOOL;
                "has_column_privilege" [NAME, ty, column, TEXT] BOOL;
                "has_column_privilege" [OID, ty, column, TEXT] BOOL;
            }
        }
    }
}

/// Adds them all.
pub(super) fn register(r: &mut Registry) {
    lookups! { r;
        "pg_get_userbyid" [OID] NAME;
        "pg_table_is_visible" [OID] BOOL;
        "pg_type_is_visible" [OID] BOOL;
        "pg_function_is_visible" [OID] BOOL;
        "pg_operator_is_visible" [OID] BOOL;
        "pg_opclass_is_visible" [OID] BOOL;
        "pg_opfamily_is_visible" [OID] BOOL;
        "pg_collation_is_visible" [OID] BOOL;
        "pg_conversion_is_visible" [OID] BOOL;
        "pg_statistics_obj_is_visible" [OID] BOOL;
        "pg_ts_config_is_visible" [OID] BOOL;
        "pg_ts_parser_is_visible" [OID] BOOL;
        "pg_ts_template_is_visible" [OID] BOOL;
        "pg_ts_dict_is_visible" [OID] BOOL;
        "pg_get_expr" [PGNODETREE, OID] TEXT;
        "pg_get_expr" [PGNODETREE, OID, BOOL] TEXT;
        "pg_get_indexdef" [OID] TEXT;
        "pg_get_indexdef" [OID, INT4, BOOL] TEXT;
        "pg_get_constraintdef" [OID] TEXT;
        "pg_get_constraintdef" [OID, BOOL] TEXT;
        "pg_get_viewdef" [OID] TEXT;
        "pg_get_viewdef" [OID, BOOL] TEXT;
        "pg_get_viewdef" [TEXT] TEXT;
        "pg_get_viewdef" [TEXT, BOOL] TEXT;
        "pg_get_ruledef" [OID] TEXT;
        "pg_get_ruledef" [OID, BOOL] TEXT;
        "pg_get_triggerdef" [OID] TEXT;
        "pg_get_triggerdef" [OID, BOOL] TEXT;
        "pg_get_functiondef" [OID] TEXT;
        "pg_get_function_result" [OID] TEXT;
        "pg_get_function_arguments" [OID] TEXT;
        "pg_get_function_identity_arguments" [OID] TEXT;
        "pg_get_function_sqlbody" [OID] TEXT;
        "pg_get_partkeydef" [OID] TEXT;
        "pg_get_statisticsobjdef" [OID] TEXT;
        "pg_get_statisticsobjdef_columns" [OID] TEXT;
        "pg_get_serial_sequence" [TEXT, TEXT] TEXT;
        "pg_get_replica_identity_index" [REGCLASS] REGCLASS;
        "obj_description" [OID] TEXT;
        "obj_description" [OID, NAME] TEXT;
        "col_description" [OID, INT4] TEXT;
        "shobj_description" [OID, NAME] TEXT;
        "pg_relation_size" [REGCLASS] INT8;
        "pg_relation_size" [REGCLASS, TEXT] INT8;
        "pg_table_size" [REGCLASS] INT8;
        "pg_indexes_size" [REGCLASS] INT8;
        "pg_total_relation_size" [REGCLASS] INT8;
        "pg_database_size" [OID] INT8;
        "pg_database_size" [NAME] INT8;
        "pg_tablespace_size" [OID] INT8;
        "pg_tablespace_location" [OID] TEXT;
        "pg_relation_filenode" [REGCLASS] OID;
        "pg_relation_is_publishable" [REGCLASS] BOOL;
        "pg_sequence_last_value" [REGCLASS] INT8;
        "pg_index_column_has_property" [REGCLASS, INT4, TEXT] BOOL;
        "pg_index_has_property" [REGCLASS, TEXT] BOOL;
        "pg_indexam_has_property" [OID, TEXT] BOOL;
        "pg_stat_get_numscans" [OID] INT8;
        "pg_stat_get_tuples_inserted" [OID] INT8;
        "pg_stat_get_live_tuples" [OID] INT8;
        "pg_has_role" [NAME, TEXT] BOOL;
        "pg_has_role" [OID, TEXT] BOOL;
        "pg_has_role" [NAME, NAME, TEXT] BOOL;
        "pg_has_role" [NAME, OID, TEXT] BOOL;
        "pg_reload_conf" [] BOOL; "pg_my_temp_schema" [] OID;
        "acldefault" [CHAR, OID] ACLITEMARRAY;
        "pg_relation_is_updatable" [REGCLASS, BOOL] INT4;
        "pg_column_is_updatable" [REGCLASS, INT2, BOOL] BOOL;
        "pg_describe_object" [OID, OID, INT4] TEXT;
    }
    privileges(r);
    // Nothing is partitioned.
    r.set(
        "pg_partition_ancestors",
        &[REGCLASS],
        REGCLASS,
        STA,
        |_, _, _| Ok(Box::new(super::NoRows)),
    );
    // Transaction ids have no age here, and what psql asks of them is only shown.
    r.f(
        "pg_xact_commit_timestamp",
        &[INT8],
        TIMESTAMPTZ,
        STA,
        |_, _| Ok(Value::Null),
    );
}

fn with_user(r: &mut Registry, user: Sig, object: Sig) {
    lookups! { r;
        "has_table_privilege" [user, object, TEXT] BOOL;
        "has_schema_privilege" [user, object, TEXT] BOOL;
        "has_database_privilege" [user, object, TEXT] BOOL;
        "has_sequence_privilege" [user, object, TEXT] BOOL;
        "has_function_privilege" [user, object, TEXT] BOOL;
        "has_any_column_privilege" [user, object, TEXT] BOOL;
        "has_type_privilege" [user, object, TEXT] BOOL;
        "has_language_privilege" [user, object, TEXT] BOOL;
        "has_tablespace_privilege" [user, object, TEXT] BOOL;
    }
}
