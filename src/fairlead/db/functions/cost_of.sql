-- How many tokens the start of a job takes from a rate: the number at `cost`, a JSON pointer into its payload. One without
-- a pointer, and where the payload has no number of at least zero there.
create or replace function fairlead.cost_of(cost text, payload jsonb) returns double precision
language sql immutable parallel safe as $$
    select case when cost is not null and jsonb_typeof(payload #> fairlead.path_of_pointer(cost)) = 'number'
        then greatest(0, (payload #>> fairlead.path_of_pointer(cost))::float8) else 1 end
$$;
grant execute on function fairlead.cost_of to fairlead_tenant;
