//! The picker as stories in `testdata/picker`, and everything else against models.

mod retain;
