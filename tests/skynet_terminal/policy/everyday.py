"""What people have run at home and at work: standard and trusted let all of it through."""

_LINES = r"""
rm -rf ~/Documents
rm -rf Documents/*
find . -name core -delete
make clean all
echo hi > .env
cat >> .env <<< 'A=b'
npm run build && rm -rf dist.old && mv dist dist.old
gh pr list
gh pr view 12
git log -p -- .env.example
ip addr show
ip -4 a
ip route
date -u +%s
date -d @0
hostnamectl
timedatectl
chmod -R u=rwX,go=rX .
chmod -R go-w .
chmod -R o-rwx .
chmod -R 755 .
chmod -R 700 ~
chmod -R 600 secrets
enable -n test
patch -p1 -d src < x.diff
split -l 100 a.txt part_
git clone https://x/y target
git clone --depth 1 -b main https://x/y
tar cf ../x.tar .
tar cf - . | gzip > x.tgz
curl -O https://x/y.zip
curl -LO --output-dir dl https://x/y.zip
yt-dlp -P ~/Videos https://x
aria2c -d dl -o x https://x
uv run python x.py
poetry run pytest
npm exec tsc -- --noEmit
conda run -n x python y.py
conda activate x
nix-shell -p jq --run 'jq . x.json'
direnv allow
xargs -I{} cp {} backup/ < list.txt
ls *.mp3 | xargs -I{} mv {} music/
base64 -d x.b64 > x.png
openssl enc -d -aes256 -in x.enc -out x
python3 -c 'import os; print(*sorted(os.environ))'
python3 -c 'import os; print(len(os.environ))'
python3 -c 'import os; print("HOME" in os.environ)'
ffmpeg -i in.mov -c:v libx264 -crf 23 -preset slow out.mp4
ffmpeg -y -i a.mkv -ss 00:01:00 -t 30 -c copy clip.mkv
for f in *.wav; do ffmpeg -i "$f" -q:a 2 "${f%.wav}.mp3"; done
convert holiday.png -resize 50% small.jpg
mogrify -resize 1920x1080 *.jpg
montage *.jpg -tile 4x -geometry 200x200+4+4 sheet.png
exiftool -all= photo.jpg
yt-dlp -x --audio-format mp3 'https://www.youtube.com/watch?v=abc'
yt-dlp -o '%(title)s.%(ext)s' https://example.com/v
pandoc notes.md -o notes.pdf --pdf-engine=xelatex
pandoc -s -t html5 -o index.html chapters/*.md
pdftotext -layout bill.pdf - | grep -i total
pdfunite a.pdf b.pdf all.pdf
qpdf --empty --pages a.pdf 1-3 b.pdf -- out.pdf
gs -sDEVICE=pdfwrite -dPDFSETTINGS=/ebook -o small.pdf big.pdf
unzip -l archive.zip
unzip -q archive.zip '*.jpg' -d photos
7z x archive.7z -oout
jq -c '.items[] | {id, name: .title}' data.json | sort -u > out.jsonl
jq -s 'map(.price) | add' *.json
curl -s https://api.example.com/items | jq -r '.[].name' | sort | head -5
curl -fsSL -H 'Accept: application/json' https://api.example.com/v1 -o data.json
curl -X POST -H 'Content-Type: application/json' -d '{"a": 1}' http://localhost:8080/api
curl -I https://example.com
wget -q --show-progress -O x.iso https://example.com/x.iso
wget -r -np -k https://example.com/docs/
git rebase main
git rebase --onto main feature~3 feature
git rebase --continue
git reset --hard HEAD~1
git cherry-pick abc123
git stash pop && git diff --stat
git log --oneline --graph --all | head -50
git log --since='2 weeks ago' --pretty=format:'%h %an %s'
git branch -D old
git push --force-with-lease origin feature
git checkout -- src/x.py
git restore --staged .
git clean -n
git worktree add ../wt feature
git submodule update --init --recursive
git show HEAD:README.md | less
git diff main...HEAD -- '*.py' | grep '^+'
git blame -L 10,20 src/x.py
git bisect start HEAD v1.0
git tag -a v1.2 -m 'Release 1.2'
git remote add up https://github.com/x/y.git
git ls-files | xargs wc -l | sort -n | tail
git grep -l TODO | xargs sed -i 's/TODO/DONE/'
npm ci
npm ci && npm run build -- --mode production
npm run lint --silent
npx prettier --write 'src/**/*.ts'
npx create-vite app --template react
pnpm -r test
yarn install --frozen-lockfile
bun run dev
node --test
node --inspect=0 server.js
deno run --allow-net main.ts
tsc -p . --watch
eslint . --fix
cargo build
cargo test -- --nocapture
cargo clippy --all-targets -- -D warnings
cargo run --bin x -- --help
go build ./...
go test -race -run TestX ./pkg/...
go mod tidy
go vet ./... && gofmt -l .
go install golang.org/x/tools/gopls@latest
mvn -q package
./gradlew test
dotnet test
uv run pytest -q
uv pip install -r requirements.txt
uv sync
poetry install --no-root
python -m pip install -e '.[dev]'
python3 -m unittest discover -s tests
python3 -m json.tool < data.json
python3 -m zipfile -e a.zip out
python3 -c "import csv; print(sum(float(r['x']) for r in csv.DictReader(open('a.csv'))))"
python3 -c "import datetime as d; print(d.date.today())"
python3 -c "print('\n'.join(str(i) for i in range(3)))"
pytest -k 'not slow' --maxfail=1 -n auto
ruff check --fix . && ruff format .
mypy --strict src
tox -e py311
black .
pre-commit run --all-files
coverage run -m pytest && coverage html
psql -h localhost -U me -d app -c 'select count(*) from users'
psql app < dump.sql
pg_dump app > dump.sql
mysql -u root app -e 'show tables'
sqlite3 notes.db '.tables'
sqlite3 -csv a.db 'select * from t' > t.csv
redis-cli get key
make -C build -j8 install DESTDIR=$PWD/out
cmake --build build --target test
meson setup build && ninja -C build
./configure && make && make check
gcc -Wall -o hello hello.c -lm
clang-format -i src/*.c
valgrind --leak-check=full ./a.out
objdump -d a.out | less
hexdump -C x.bin | head
xxd x.bin | head -3
strings x.bin | grep version
file *
stat -c '%s %n' *
tree -L 2 -I node_modules
du -ah . | sort -rh | head -20
df -h .
find . -type f -size +100M
find . -name '*.log' -mtime +7 -delete
find . -type d -empty -delete
find . -name node_modules -prune -o -name '*.js' -print
find . -type f -exec chmod 644 {} +
find photos -iname '*.jpg' -exec cp {} sorted/ \;
find . -name '*.bak' -exec rm {} \;
rsync -av --progress src/ backup/
rsync -a --delete src/ backup/
tar -czvf backup-$(date +%F).tar.gz Documents
tar -tzf x.tgz | head
tar -xzf x.tgz --strip-components=1 -C app
zip -9 -r photos.zip photos -x '*.raw'
gzip -k big.log && zcat big.log.gz | wc -l
split -b 100M big.bin part-
cat part-* > big.bin
sha256sum *.iso > SHA256SUMS && sha256sum -c SHA256SUMS
sed -E 's/([0-9]+)/<\1>/g' in.txt > out.txt
sed -i.bak '/^#/d' config.ini
awk -F, 'NR>1 {s+=$3} END {printf "%.2f\n", s/NR}' data.csv
awk '{a[$1]++} END {for (k in a) print k, a[k]}' log.txt
sort -t, -k2 -n data.csv | cut -d, -f1,2 | column -s, -t
tr '[:upper:]' '[:lower:]' < a.txt | tr -cs 'a-z' '\n' | sort | uniq -c | sort -rn | head
paste -d, a.txt b.txt
comm -12 <(sort a) <(sort b)
diff -u old.txt new.txt > fix.patch; patch -p1 < fix.patch
iconv -f latin1 -t utf-8 a.txt > b.txt
dos2unix *.txt
cal 2026
bc <<< 'scale=2; 10/3'
echo "$((3 * 7))"
expr 3 + 4
seq 1 10 | xargs -n 2 echo
date -d 'next friday' +%A
units '5 miles' km
printf '%05d\n' 42
fortune | cowsay
espeak 'dinner is ready'
aspell check letter.txt
libreoffice --headless --convert-to pdf letter.docx
soffice --headless --convert-to csv sheet.xlsx
tesseract scan.png scan -l deu
whisper talk.mp3 --model small
gallery-dl https://example.com/album
rename 's/ /_/g' *.jpg
for i in $(seq 1 10); do mkdir -p "week$i"; done
for f in *.JPG; do mv "$f" "${f%.JPG}.jpg"; done
for f in *; do [ -d "$f" ] && du -sh "$f"; done
while IFS=, read -r name mail; do echo "$name <$mail>"; done < people.csv
ls | wc -l
ls -t | head -1 | xargs cat
ls *.txt | while read f; do wc -l "$f"; done
mkdir -p ~/Documents/taxes/2025 && mv *.pdf ~/Documents/taxes/2025/
cp ~/Downloads/x.pdf .
mv ~/Downloads/*.jpg ~/Pictures/
rm -rf ~/Downloads/old
rm -rf target && cargo build
rm -rf .venv && python3 -m venv .venv && . .venv/bin/activate && pip install -U pip
rm -rf dist build *.egg-info
rm -f *.o *.tmp core
[ -d build ] && rm -rf build
test -f .env.example && cp .env.example .env
export NODE_ENV=production && npm start
PORT=3000 npm start &
DEBUG=1 python app.py 2>&1 | tee log.txt
source ~/.nvm/nvm.sh && nvm use 20
timeout 60 pytest -q || echo failed
time python bench.py
watch -n 5 'ls -la | tail'
nohup python train.py > train.log 2>&1 &
jobs; fg %1
kill %2
pkill -f 'python app.py'
killall node
lsof -i :8080
ss -tlnp
netstat -an | grep LISTEN
ip addr
ifconfig
hostname -I
traceroute example.com
nslookup example.com
whois example.com
free -h; uptime
htop
ps aux --sort=-%mem | head
ps aux | grep -v grep | grep node
printenv PATH
echo $USER $SHELL
tail -f log.txt | grep --line-buffered ERROR
grep -rn --include='*.py' 'import os' .
grep -v '^#' /etc/fstab
cat /etc/hosts
cat /proc/meminfo | head -3
ls /usr/share/fonts | head
less /var/log/dpkg.log
openssl x509 -in cert.pem -text -noout
ssh-keygen -t ed25519 -f ./key -N ''
gpg --verify x.sig x
base64 -d x.b64 > x.bin
echo 'hello' | base64
python3 -c "import base64; print(base64.b64decode('aGk='))"
tmux new -s work
screen -ls
vim +42 src/x.py
nano notes.txt
code --wait x
xdg-open x.pdf
docker-compose.yml
cat Dockerfile
cat docker-compose.yml
grep -n password src/app.py
grep -rn 'api_key' src
cat src/id_rsa_test.py
cat src/credentials.py
cat .gitignore .dockerignore
cat .npmrc.example
echo "Don't run rm -rf / please" >> notes.txt
echo 'export PATH=$PATH:~/bin'
terraform fmt && terraform validate
ansible-lint playbook.yml
kubectl version --client
aws --version
gh --version
helm lint chart
hugo server -D
jekyll build
mkdocs build
sphinx-build docs build
latexmk -pdf paper.tex
dot -Tsvg graph.dot -o graph.svg
gnuplot plot.gp
Rscript analysis.R
octave --eval 'disp(1+1)'
julia script.jl
perl -ne 'print if /x/' a.txt
perl -i -pe 's/a/b/g' *.txt
ruby -e 'puts 1 + 1'
php -S localhost:8000
php -l index.php
java -jar app.jar --port 8080
javac Main.java && java Main
swift build
bundle exec rspec
rails db:migrate
composer install
mix test
stack build
ghc Main.hs -o main && ./main
ocaml x.ml
nim c -r x.nim
zig build run
asciinema rec demo.cast
shellcheck x.sh
bash -n x.sh
bash -x x.sh
sh ./install.sh --prefix=$HOME/.local
chmod 755 x.sh && ./x.sh
chmod -R a+rX public
install -m 755 x.sh ~/.local/bin/x
ln -sf ../shared/config.yml config.yml
touch {a,b,c}.txt
mkdir -p src/{main,test}/java
cp -r ~/. /tmp/x
cp -a src/. dst/
mv src/* lib/
mktemp -d
tmp=$(mktemp -d); cd "$tmp"; git clone https://github.com/x/y; cd y; make
cd /tmp && wget https://x/y.tgz && tar xf y.tgz && cd y && ./configure && make
if command -v rg >/dev/null; then rg x; else grep -r x .; fi
type -a python3
read -p 'Name? ' name; echo "Hi $name"
select x in a b; do echo $x; break; done
declare -A m; m[a]=1; echo "${m[a]}"
arr=(1 2 3); for x in "${arr[@]}"; do echo $x; done
f() { local x=$1; echo "$x"; }; f a
set -x; make; set +x
ulimit -n
umask 022
stty size
tput cols
clear
reset
exit
true && echo yes || echo no
: > empty.txt
> log.txt
exec > log.txt 2>&1; date
"""
EVERYDAY = [
    *_LINES.strip().splitlines(),
    "python3 - <<'EOF'\nimport pandas as pd\ndf = pd.read_csv('a.csv')\nprint(df.describe())\nEOF",
    "cat <<EOF > config.yml\nname: test\nport: 8080\nEOF",
    "cat >> README.md <<'EOF'\n## Usage\n$ sudo make install\nEOF",
]
