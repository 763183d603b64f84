-- Every change of a definition increments its version, on which other processes' compiled validators depend.
create or replace function fairlead.touch_definition() returns trigger language plpgsql volatile as $$
begin
    new.version := old.version + 1;
    new.updated_at := clock_timestamp();
    return new;
end
$$;
