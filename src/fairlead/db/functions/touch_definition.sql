-- Whoever changes a definition, the version moves: compiled validators elsewhere go by it.
create or replace function fairlead.touch_definition() returns trigger language plpgsql volatile as $$
begin
    new.version := old.version + 1;
    new.updated_at := clock_timestamp();
    return new;
end
$$;
