//! Tests of several modules together.

mod block_roles;
mod cache_popularity;
mod forged_index;
