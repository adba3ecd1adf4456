//! TPC-C: NewOrder and Payment over the nine tables (specification 5.11, clauses 1 to 2.5).
//!
//! Sizes are those of clause 1.2.1, per warehouse: 10 districts, 3,000 customers and 3,000 orders
//! in each, 100,000 items (once) and as many stock rows. Random numbers follow clause 2.1.6 (with
//! one constant per use), last names clause 4.3.2.3, and one NewOrder in a hundred names an item
//! that does not exist and is rolled back (clause 2.4.1.4). One in a hundred lines is supplied by
//! another warehouse, fifteen in a hundred payments come from a customer of another one, sixty in
//! a hundred find the customer by last name.
//!
//! Money is in cents and rates in ten-thousandths, as 64-bit integers; times are microseconds
//! that the caller gives. Between runs: [`check`] compares the year-to-date sums and the density
//! of order numbers (clause 3.3.2, conditions 1 to 3).
//!
//! Left out on purpose: OrderStatus, Delivery and StockLevel, think times and terminals.

mod late;
mod load;
mod txn;

pub use load::{Step, check};
pub use txn::{NewOrder, Params, Payment};

use crate::kv::{Column, Table};
use crate::rng::NuRand;

pub const WAREHOUSE: usize = 0;
pub const DISTRICT: usize = 1;
pub const CUSTOMER: usize = 2;
pub const HISTORY: usize = 3;
pub const ITEM: usize = 4;
pub const STOCK: usize = 5;
pub const ORDERS: usize = 6;
pub const NEW_ORDER: usize = 7;
pub const ORDER_LINE: usize = 8;

/// The secondary index of CUSTOMER: warehouse, district, last name, first name.
pub const CUSTOMER_BY_NAME: usize = 1;

/// The sums that the payments of a warehouse and of a district meet at: table and column. The thesis splits these (§4.5.1).
pub const SPLIT: [(usize, usize); 2] = [(WAREHOUSE, 8), (DISTRICT, 9)];

use Column::{Int, Text};

pub const TABLES: &[Table] = &[
    Table {
        name: "warehouse",
        columns: &[
            ("w_id", Int),
            ("w_name", Text),
            ("w_street_1", Text),
            ("w_street_2", Text),
            ("w_city", Text),
            ("w_state", Text),
            ("w_zip", Text),
            ("w_tax", Int),
            ("w_ytd", Int),
        ],
        key: &[0],
        indexes: &[],
    },
    Table {
        name: "district",
        columns: &[
            ("d_w_id", Int),
            ("d_id", Int),
            ("d_name", Text),
            ("d_street_1", Text),
            ("d_street_2", Text),
            ("d_city", Text),
            ("d_state", Text),
            ("d_zip", Text),
            ("d_tax", Int),
            ("d_ytd", Int),
            ("d_next_o_id", Int),
        ],
        key: &[0, 1],
        indexes: &[],
    },
    Table {
        name: "customer",
        columns: &[
            ("c_w_id", Int),
            ("c_d_id", Int),
            ("c_id", Int),
            ("c_first", Text),
            ("c_middle", Text),
            ("c_last", Text),
            ("c_street_1", Text),
            ("c_street_2", Text),
            ("c_city", Text),
            ("c_state", Text),
            ("c_zip", Text),
            ("c_phone", Text),
            ("c_since", Int),
            ("c_credit", Text),
            ("c_credit_lim", Int),
            ("c_discount", Int),
            ("c_balance", Int),
            ("c_ytd_payment", Int),
            ("c_payment_cnt", Int),
            ("c_delivery_cnt", Int),
            ("c_data", Text),
        ],
        key: &[0, 1, 2],
        indexes: &[&[0, 1, 5, 3]],
    },
    Table {
        name: "history",
        columns: &[
            ("h_c_id", Int),
            ("h_c_d_id", Int),
            ("h_c_w_id", Int),
            ("h_d_id", Int),
            ("h_w_id", Int),
            ("h_date", Int),
            ("h_amount", Int),
            ("h_data", Text),
        ],
        key: &[],
        indexes: &[],
    },
    Table {
        name: "item",
        columns: &[
            ("i_id", Int),
            ("i_im_id", Int),
            ("i_name", Text),
            ("i_price", Int),
            ("i_data", Text),
        ],
        key: &[0],
        indexes: &[],
    },
    Table {
        name: "stock",
        columns: &[
            ("s_w_id", Int),
            ("s_i_id", Int),
            ("s_quantity", Int),
            ("s_dist_01", Text),
            ("s_dist_02", Text),
            ("s_dist_03", Text),
            ("s_dist_04", Text),
            ("s_dist_05", Text),
            ("s_dist_06", Text),
            ("s_dist_07", Text),
            ("s_dist_08", Text),
            ("s_dist_09", Text),
            ("s_dist_10", Text),
            ("s_ytd", Int),
            ("s_order_cnt", Int),
            ("s_remote_cnt", Int),
            ("s_data", Text),
        ],
        key: &[0, 1],
        indexes: &[],
    },
    Table {
        name: "orders",
        columns: &[
            ("o_w_id", Int),
            ("o_d_id", Int),
            ("o_id", Int),
            ("o_c_id", Int),
            ("o_entry_d", Int),
            ("o_carrier_id", Int),
            ("o_ol_cnt", Int),
            ("o_all_local", Int),
        ],
        key: &[0, 1, 2],
        indexes: &[],
    },
    Table {
        name: "new_order",
        columns: &[("no_w_id", Int), ("no_d_id", Int), ("no_o_id", Int)],
        key: &[0, 1, 2],
        indexes: &[],
    },
    Table {
        name: "order_line",
        columns: &[
            ("ol_w_id", Int),
            ("ol_d_id", Int),
            ("ol_o_id", Int),
            ("ol_number", Int),
            ("ol_i_id", Int),
            ("ol_supply_w_id", Int),
            ("ol_delivery_d", Int),
            ("ol_quantity", Int),
            ("ol_amount", Int),
            ("ol_dist_info", Text),
        ],
        key: &[0, 1, 2, 3],
        indexes: &[],
    },
];

/// The sizes of a run. [`Tpcc::new`] gives the specification's; tests shrink them.
#[derive(Clone, Copy, Debug)]
pub struct Tpcc {
    pub warehouses: i64,
    pub districts: i64,
    pub customers: i64,
    pub items: i64,
    /// The sums of warehouses and districts ([`SPLIT`]) are added to, not read and written.
    pub split: bool,
}

impl Tpcc {
    pub fn new(warehouses: i64) -> Tpcc {
        assert!(warehouses > 0, "at least one warehouse");
        Tpcc {
            warehouses,
            districts: 10,
            customers: 3000,
            items: 100_000,
            split: false,
        }
    }

    fn draw_customer(&self, rng: &mut crate::rng::Rng) -> i64 {
        NuRand { a: 1023, c: 259 }.draw(rng, 1, self.customers)
    }

    fn draw_item(&self, rng: &mut crate::rng::Rng) -> i64 {
        NuRand { a: 8191, c: 7911 }.draw(rng, 1, self.items)
    }

    /// Only the first 1,000 customers of a district are sure to cover the names.
    fn draw_name(&self, rng: &mut crate::rng::Rng) -> i64 {
        let most = self.customers.min(1000) - 1;
        NuRand { a: 255, c: 223 }.draw(rng, 0, most)
    }
}

/// The last name of number `n` in `0..1000` (clause 4.3.2.3), written into `out`.
pub fn last_name(n: i64, out: &mut String) {
    const SYLLABLES: [&str; 10] = [
        "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
    ];
    out.clear();
    for digit in [n / 100, n / 10 % 10, n % 10] {
        out.push_str(SYLLABLES[digit as usize]);
    }
}
