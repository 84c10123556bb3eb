//! Tests of several modules together.

mod cache_popularity;
mod forged_index;
